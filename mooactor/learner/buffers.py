# SPDX-License-Identifier: MIT
"""Tensors as the collectives see them: an address, a number of bytes, a type.

A contiguous numpy array or torch CPU tensor in native form is used in place. Everything
else that collectives take (see `kinds`) is *staged*: copied to such memory first, and
the results are copied back when the operation has succeeded.
"""

from __future__ import annotations

import functools
import hashlib
import json
import struct
import sys
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mooactor.learner.arguments import label, listed
from mooactor.learner.kinds import (
    check_array,
    check_torch,
    is_array,
    is_plain,
    is_resolved,
    is_torch,
    name_of_dtype,
    name_of_torch,
)
from mooactor.learner.places import Place, first_shared, place_of
from mooactor.tensors.collective import DTYPES

if TYPE_CHECKING:
    import numpy as np

# The staged memory in which a queued operation will leave the result for a place.
Staged = Callable[[Place], Any]


class Buffer(NamedTuple):
    """Memory that stands for one tensor, and keeps it alive.

    Invariant: it holds the memory itself. A torch tensor does not: `model.half()`,
    `tensor.data = …` and `moo.move` give it other memory, and free its own.
    """

    address: int
    bytes: int
    dtype: str
    shape: tuple[int, ...]
    holder: Any  # the tensor's memory, or its contiguous copy
    finish: Callable[[], object] | None = None  # brings the results back
    staged: Place | None = None  # the tensor's own place, if this is a copy

    @property
    def place(self) -> Place:
        """The memory of the tensor itself."""
        if self.staged is not None:
            return self.staged
        return Place("", self.address, self.address + self.bytes)

    @property
    def span(self) -> tuple[int, int]:
        """The first byte of the tensor itself, and the one behind its last."""
        if self.staged is not None:
            return self.staged.low, self.staged.high
        return self.address, self.address + self.bytes


def nothing_staged(place: Place) -> None:
    """No operation is queued."""


def buffer_of(tensor: Any, *, written: bool, staged: Staged = nothing_staged) -> Buffer:
    """The memory of a tensor, or of a copy.

    Args:
      written: whether the operation writes to it.
      staged: memory that a queued operation has for the very same tensor. It is used in
        place of a new copy, so that this operation works on that one's result.

    Raises:
      TypeError: it is no tensor, holds Python objects, or its bytes are not its value.
      ValueError: it would be written to, and is read-only, or its elements share
        memory.
    """
    if is_plain(tensor):
        address = tensor.data_ptr()
        if address % tensor.itemsize == 0:
            name, storage = name_of_torch(tensor), tensor.untyped_storage()
            return Buffer(address, tensor.nbytes, name, tensor.shape, storage)
    if is_array(tensor):
        return _of_array(tensor, written, staged)
    if is_torch(tensor):
        return _of_torch(tensor, written, staged)
    if tensor is None:
        raise TypeError(
            "one of the tensors is None, as the gradient of an unused parameter is: "
            "leave it out, or pass zeros"
        )
    raise TypeError(f"{type(tensor).__name__} is neither an array nor a tensor")


def layout_of(buffers: Iterable[Buffer], keys: tuple[Any, ...] = ()) -> int:
    """A hash of shapes, types and keys (see `keys_of`), the same in every process."""
    return _layout_number(tuple([(b.dtype, b.shape) for b in buffers]), keys)


@functools.lru_cache(maxsize=1024)  # the same few, in each step of a training
def _layout_number(
    kinds: tuple[tuple[str, tuple[int, ...]], ...], keys: tuple[Any, ...]
) -> int:
    # Not `hash`, nor `repr`, which another version of Python may compute otherwise.
    numbers = [n for dtype, shape in kinds for n in (_code(dtype), len(shape), *shape)]
    packed = struct.pack(f"<{len(numbers)}Q", *numbers)
    if keys:
        packed += json.dumps(keys).encode("ascii")
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "little")


def _code(dtype: str) -> int:
    """A number for the type, the same in every process."""
    known = DTYPES.get(dtype)
    return zlib.crc32(dtype.encode()) if known is None else known


def _of_array(array: np.ndarray[Any, Any], written: bool, staged: Staged) -> Buffer:
    check_array(array)
    flags, dtype = array.flags, array.dtype
    if written and not flags.writeable:
        raise ValueError("the array is read-only; pass out= or a copy")
    address = array.__array_interface__["data"][0]
    if flags.c_contiguous and flags.aligned and dtype.isnative:
        return Buffer(address, array.nbytes, name_of_dtype(dtype), array.shape, array)
    import numpy as np

    place = place_of("", address, array.shape, array.strides, array.itemsize, dtype)
    _refuse_repeats(place, written)
    memory = staged(place)
    if memory is None:
        memory = np.array(array, dtype.newbyteorder("="), order="C")
    address = memory.__array_interface__["data"][0]
    finish = _copier(np.copyto, array, memory) if written else None
    name = name_of_dtype(memory.dtype)
    return Buffer(address, memory.nbytes, name, array.shape, memory, finish, place)


def _of_torch(tensor: Any, written: bool, staged: Staged) -> Buffer:
    name = name_of_torch(tensor)
    check_torch(tensor)
    tensor = tensor.detach()  # which keeps its memory, and with it its place
    place = _place_of_torch(tensor)
    _refuse_repeats(place, written)
    memory = staged(place)
    if memory is None:
        memory = _copy_of(tensor)
    finish = _copier(_copy_back, tensor, memory) if written else None
    return Buffer(
        *(memory.data_ptr(), memory.nbytes, name, tensor.shape, memory),
        *(finish, place),
    )


def _place_of_torch(tensor: Any) -> Place:
    # The addresses of other devices' memory are not known, or are no addresses.
    known = tensor.is_cpu or tensor.is_cuda
    return place_of(
        "" if tensor.is_cpu else str(tensor.device),
        tensor.data_ptr() if known else 0,
        tensor.shape,
        [stride * tensor.itemsize for stride in tensor.stride()],
        tensor.itemsize,
        (tensor.dtype, tensor.is_conj(), tensor.is_neg()),
    )


def _refuse_repeats(place: Place, written: bool) -> None:
    # Before anything is copied: it may be a view of a trillion elements.
    if written and place.repeats():
        raise ValueError(
            "its elements share memory, like those of an expanded view, so it "
            "cannot hold a result: pass a copy, or out="
        )


def _copier(copy: Callable[[Any, Any], object], to: Any, memory: Any) -> Any:
    return lambda: copy(to, memory)


def _copy_of(tensor: Any) -> Any:
    """A detached tensor's present value in main memory, contiguous, and nowhere
    else."""
    if not is_resolved(tensor):
        return tensor.clone().resolve_conj().resolve_neg().cpu().contiguous()
    if tensor.is_cuda:
        from mooactor.tensors.cuda import codec as cuda

        return cuda.to_host(tensor)
    if tensor.is_cpu:
        contiguous = sys.modules["torch"].contiguous_format
        return tensor.clone(memory_format=contiguous)
    return tensor.cpu().contiguous()


def _copy_back(tensor: Any, memory: Any) -> None:
    if tensor.is_cuda and is_resolved(tensor):
        from mooactor.tensors.cuda import codec as cuda

        cuda.from_host(memory, tensor)
    else:
        tensor.copy_(memory)


def empty_like(tensor: Any, shape: tuple[int, ...]) -> Any:
    """A new tensor of the same kind, type and device, for results of another shape."""
    if is_array(tensor):
        return sys.modules["numpy"].empty(shape, tensor.dtype)
    return tensor.detach().new_empty(shape)


# -- several -----------------------------------------------------------------


def buffers_of(
    tensors: Any, *, written: bool, staged: Staged, what: str = "tensor"
) -> list[Buffer]:
    """The memory of each tensor of an argument; errors name the tensor.

    Raises:
      TypeError, ValueError: as `buffer_of` does.
    """
    buffers: list[Buffer] = []
    for tensor in listed(tensors):
        try:
            buffers.append(buffer_of(tensor, written=written, staged=staged))
        except (TypeError, ValueError) as error:
            at = label(tensors, len(buffers))
            raise type(error)(f"{what} {at}: {error}" if at else str(error)) from None
    return buffers


def refuse_shared(
    tensors: Any,
    written: Sequence[Buffer],
    read: Sequence[Buffer] = (),
    out: Any = None,
) -> None:
    """Check that an operation's results share no memory with anything else of it; but a
    result may replace its own input.

    Raises:
      ValueError: it does. The message names both.
    """
    if len(written) + len(read) < 2:
        return
    n, buffers = len(written), (*written, *read)
    shared = first_shared([b.span for b in buffers], lambda i: buffers[i].place, n)
    if shared is None:
        return
    names = [
        f"tensor {label(tensors, i % n)}"
        if i >= n or out is None
        else f"result {label(out, i)} of out="
        for i in shared
    ]
    raise ValueError(
        f"{names[0].strip()} and {names[1].strip()} share memory, so the result would "
        "depend on their order: pass each tensor once, and copies of views"
    )
