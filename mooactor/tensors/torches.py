# SPDX-License-Identifier: MIT
"""The conversion of a torch tensor to one flat buffer and a few words, and back.

`cuda.codec` moves the bytes of CUDA tensors; tensors of other devices are copied to
main memory first and arrive on a device of the same name.
Sparse, nested and quantised tensors, those with names, hooks or attributes of their
own, and subclasses are left to torch's own pickling.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any

import torch

from mooactor.tensors.codec import (
    THRESHOLD,
    has_repeats,
    is_dense,
    without_repeats,
)
from mooactor.tensors.plane import DataPlane

if TYPE_CHECKING:
    from mooactor.tensors.cuda.codec import Origin

# Integers of the same size stand in for types that numpy lacks.
_NATIVE = (
    *(torch.float64, torch.float32, torch.float16, torch.complex64),
    *(torch.complex128, torch.bool, torch.uint8, torch.int8, torch.int16),
    *(torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64),
)
_STAND_INS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _sendable_dtypes() -> dict[torch.dtype, tuple[str, torch.dtype | None]]:
    found: dict[torch.dtype, tuple[str, torch.dtype | None]] = {}
    for name in dir(torch):
        dtype = getattr(torch, name)
        if not isinstance(dtype, torch.dtype) or "q" in name:  # quint8, qint32, …
            continue
        if dtype in _NATIVE:
            found[dtype] = (name, None)
        elif dtype.itemsize in _STAND_INS:
            found[dtype] = (name, _STAND_INS[dtype.itemsize])
    return found


_DTYPES = _sendable_dtypes()
# Named tensors are gone from newer versions of torch.
_has_names: Callable[[torch.Tensor], bool] = getattr(
    torch.Tensor, "has_names", lambda tensor: False
)


def reduce_tensor(tensor: torch.Tensor) -> Any:
    """The reduction of an exact `torch.Tensor`."""
    return _reduce(tensor, _GRAD if tensor.requires_grad else 0)


def reduce_parameter(parameter: torch.nn.Parameter) -> Any:
    """The reduction of an exact `torch.nn.Parameter`."""
    return _reduce(parameter, _PARAMETER | (_GRAD if parameter.requires_grad else 0))


_GRAD = 1
_PARAMETER = 2


def _reduce(tensor: torch.Tensor, flags: int) -> Any:
    known = _DTYPES.get(tensor.dtype)
    if known is None or _is_special(tensor):
        return NotImplemented
    name, stand_in = known
    plain = tensor.detach()
    if tensor.is_conj() or tensor.is_neg():
        return rebuild_flagged, (plain.resolve_conj().resolve_neg(), None, flags)
    if tensor._is_zerotensor():  # of autograd: it has no memory
        return rebuild_flagged, (plain.clone(), None, flags)
    if not (tensor.is_cpu or tensor.is_cuda):
        return rebuild_flagged, (plain.cpu(), str(tensor.device), flags)
    if not tensor.is_contiguous():
        return _reduce_laid_out(plain, name, stand_in, flags)
    return _packed(plain, name, stand_in, tuple(tensor.shape), None, flags)


def _is_special(tensor: torch.Tensor) -> bool:
    return bool(
        tensor.layout is not torch.strided
        or tensor.is_nested  # of layout strided as well, and without strides
        or tensor.is_quantized
        or tensor.is_meta
        or tensor.__dict__
        or tensor._backward_hooks
        or _has_names(tensor)
    )


def _reduce_laid_out(
    plain: torch.Tensor, name: str, stand_in: torch.dtype | None, flags: int
) -> Any:
    shape, strides = tuple(plain.shape), plain.stride()
    if plain.numel() and has_repeats(shape, strides):
        kept = plain[without_repeats(shape, strides)]
        return rebuild_repeated, (kept, shape, flags)
    if not is_dense(shape, strides, 1):
        return _packed(plain.contiguous(), name, stand_in, shape, None, flags)
    flat = plain.as_strided((plain.numel(),), (1,), plain.storage_offset())
    return _packed(flat, name, stand_in, shape, strides, flags)


def _packed(
    flat: torch.Tensor,
    name: str,
    stand_in: torch.dtype | None,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    flags: int,
) -> Any:
    # `flat` is contiguous, and has the elements in the order of the strides.
    if flat.is_cpu:
        data = _buffer(flat, stand_in)
        return rebuild_tensor, (data, name, shape, strides, flags)
    from mooactor.tensors.cuda import codec as cuda

    data, origin = cuda.pack(flat)
    return rebuild_on_gpu, (data, origin, name, shape, strides, flags)


def _buffer(flat: torch.Tensor, stand_in: torch.dtype | None) -> Any:
    # The array shares the tensor's memory and keeps it alive.
    array: Any = (flat if stand_in is None else flat.view(stand_in)).numpy()
    if array.nbytes >= THRESHOLD:
        return PickleBuffer(array)
    return bytearray(array.tobytes())


def rebuild_tensor(
    data: Any,
    name: str,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    flags: int,
) -> torch.Tensor:
    """A writable tensor over `data`; the inverse of `reduce_tensor`."""
    dtype = getattr(torch, name)
    if not len(data):
        tensor = torch.empty(shape, dtype=dtype)
    else:
        if type(data) is bytes:  # a read-only buffer that was pickled in band
            data = bytearray(data)
        flat = torch.frombuffer(data, dtype=dtype)
        tensor = (
            flat.view(shape) if strides is None else flat.as_strided(shape, strides)
        )
    return _flagged(tensor, flags)


def rebuild_on_gpu(
    data: Any,
    origin: Origin,
    name: str,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    flags: int,
) -> torch.Tensor:
    """A tensor on the sender's device, or on the current one; see `cuda.codec`."""
    from mooactor.tensors.cuda import codec as cuda

    dtype = getattr(torch, name)
    count = math.prod(shape)
    flat = cuda.unpack(data, origin, count * dtype.itemsize).view(dtype)
    tensor = flat.view(shape) if strides is None else flat.as_strided(shape, strides)
    return _flagged(tensor, flags)


def rebuild_repeated(
    kept: torch.Tensor, shape: tuple[int, ...], flags: int
) -> torch.Tensor:
    """Expand the dimensions that were sent once."""
    return _flagged(kept.expand(shape), flags)


def rebuild_flagged(
    resolved: torch.Tensor, device: str | None, flags: int
) -> torch.Tensor:
    """Copy a tensor that crossed in main memory back to its device."""
    return _flagged(resolved if device is None else resolved.to(device), flags)


def _flagged(tensor: torch.Tensor, flags: int) -> torch.Tensor:
    if flags & _PARAMETER:
        return torch.nn.Parameter(tensor, bool(flags & _GRAD))
    return tensor.requires_grad_() if flags else tensor


# -- moving ----------------------------------------------------------------


def move(plane: DataPlane, tensor: Any) -> Any:
    """The work behind `moo.move`, for an exact, dense tensor in main memory; another
    object is returned as it is."""
    if not _is_movable(tensor) or tensor.nbytes < THRESHOLD:
        return tensor
    if plane.mark_moved(tensor.data_ptr()):
        moved = tensor.detach()
    else:
        memory = plane.empty_buffer(tensor.nbytes)
        moved = torch.frombuffer(memory, dtype=tensor.dtype).view(tensor.shape)
        moved.copy_(tensor)
        plane.mark_moved(moved.data_ptr())
    tensor.data = tensor.new_empty(0)
    return moved


def _is_movable(tensor: Any) -> bool:
    return bool(
        type(tensor) is torch.Tensor
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and not tensor.is_nested  # of layout strided as well
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not tensor.requires_grad
    )


HANDLERS: dict[type, Callable[[Any], Any]] = {
    torch.Tensor: reduce_tensor,
    torch.nn.Parameter: reduce_parameter,
}
