# SPDX-License-Identifier: MIT
"""Tensors as the collectives see them: an address, a number of bytes, a type.

A contiguous numpy array or torch CPU tensor is used where it lies. Everything else
(strided views, tensors on a GPU) is copied to such memory first, and the results
are copied back when the operation has succeeded.

Neither library is imported here: who has not loaded torch has no tensors of it.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from mooactor.tensors.collective import DTYPES

if TYPE_CHECKING:
    import numpy as np


class Buffer(NamedTuple):
    """Memory that stands for one tensor, and keeps it alive."""

    address: int
    bytes: int
    dtype: str
    shape: tuple[int, ...]
    holder: Any  # the tensor itself, or its contiguous copy
    finish: Callable[[], object] | None  # brings the results back

    @property
    def code(self) -> int:
        """A number for the type, the same in every process."""
        known = DTYPES.get(self.dtype)
        return zlib.crc32(self.dtype.encode()) if known is None else known


def is_array(value: object) -> bool:
    """Whether `value` is a numpy array, without importing numpy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def is_torch(value: object) -> bool:
    """Whether `value` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def listed(tensors: Any) -> list[Any]:
    """The tensors in one argument: itself, or its values in order."""
    if type(tensors) is list:  # the usual case; what follows takes a while
        return tensors
    if is_array(tensors) or is_torch(tensors):
        return [tensors]
    if isinstance(tensors, Mapping):
        return [tensors[key] for key in sorted(tensors)]
    if isinstance(tensors, Iterable):
        return list(tensors)
    raise TypeError(
        "expected an array, a tensor, or a list or dict of them, "
        f"not {type(tensors).__name__}"
    )


def buffer_of(tensor: Any, *, written: bool) -> Buffer:
    """The memory of a tensor, or of a copy.

    Args:
      written: whether the operation writes to it.

    Raises:
      TypeError: it is no tensor, or holds Python objects.
      ValueError: it would be written to, and is read-only.
    """
    if is_array(tensor):
        return _of_array(tensor, written)
    if is_torch(tensor):
        return _of_torch(tensor, written)
    if tensor is None:
        raise TypeError("None among the tensors: a parameter without a gradient?")
    raise TypeError(f"{type(tensor).__name__} is neither an array nor a tensor")


def layout_of(buffers: Iterable[Buffer]) -> int:
    """A number that differs where shapes or types do, alike in every process."""
    return hash(tuple((b.code, b.shape) for b in buffers)) & 0xFFFFFFFFFFFFFFFF


def _of_array(array: np.ndarray[Any, Any], written: bool) -> Buffer:
    if array.dtype.hasobject:
        raise TypeError("an array of Python objects cannot be shared")
    if written and not array.flags.writeable:
        raise ValueError("the array is read-only; pass out= or a copy")
    memory, finish = array, None
    if not array.flags.c_contiguous:
        import numpy as np

        memory = np.ascontiguousarray(array)
        if written:
            finish = _copier(np.copyto, array, memory)
    address = memory.__array_interface__["data"][0]
    return Buffer(address, memory.nbytes, array.dtype.name, array.shape, memory, finish)


def _of_torch(tensor: Any, written: bool) -> Buffer:
    memory, finish = tensor, None
    if tensor.is_cuda:
        memory = _copy_of_cuda(tensor)
        if written:
            finish = _copier(_copy_to_cuda, tensor, memory)
    elif not tensor.is_cpu or not tensor.is_contiguous():
        memory = tensor.detach().cpu().contiguous()
        if written:
            finish = _copier(_copy_torch, tensor, memory)
    name = _torch_names.get(tensor.dtype)
    if name is None:
        name = str(tensor.dtype).removeprefix("torch.")
        _torch_names[tensor.dtype] = name
    return Buffer(memory.data_ptr(), memory.nbytes, name, tensor.shape, memory, finish)


_torch_names: dict[Any, str] = {}


def _copier(copy: Callable[[Any, Any], object], to: Any, memory: Any) -> Any:
    return lambda: copy(to, memory)


def _copy_of_cuda(tensor: Any) -> Any:
    """A CUDA tensor's present value in main memory, contiguous."""
    from mooactor.tensors import cuda

    return cuda.to_host(tensor)


def _copy_to_cuda(to: Any, memory: Any) -> None:
    from mooactor.tensors import cuda

    cuda.from_host(memory, to)


def _copy_torch(to: Any, memory: Any) -> None:
    to.detach().copy_(memory)


def empty_like(tensor: Any, shape: tuple[int, ...]) -> Any:
    """A new tensor of the same kind, type and device, for results of another shape."""
    if is_array(tensor):
        return sys.modules["numpy"].empty(shape, tensor.dtype)
    return tensor.detach().new_empty(shape)
