# SPDX-License-Identifier: MIT
"""Handing the memory of an array or tensor over: the work behind `moo.move`."""

from __future__ import annotations

import sys
import weakref
from typing import Any

import numpy as np

from mooactor.tensors.layout import THRESHOLD
from mooactor.tensors.plane import MEMORY_TYPES, DataPlane


def move(plane: DataPlane, obj: Any) -> Any:
    """Move `obj` if it is an exact, dense array or tensor in main memory."""
    torch = sys.modules.get("torch")
    if type(obj) is np.ndarray and not obj.dtype.hasobject:
        return _move_array(plane, obj)
    if torch is not None and type(obj) is torch.Tensor and _is_plain(torch, obj):
        return _move_tensor(plane, obj)
    return obj


def _is_plain(torch: Any, tensor: Any) -> bool:
    return bool(
        tensor.is_cpu
        and tensor.layout is torch.strided
        and not tensor.is_nested  # of layout strided as well
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not tensor.requires_grad
    )


def _move_array(plane: DataPlane, array: Any) -> Any:
    if array.nbytes < THRESHOLD:
        return array
    root = _root(array)
    if type(root) in MEMORY_TYPES and plane.mark_moved(array.ctypes.data):
        start = np.frombuffer(root, np.uint8).ctypes.data
        moved = np.ndarray(
            array.shape, array.dtype, root, array.ctypes.data - start, array.strides
        )
        _empty(array, root)
        return moved
    moved = np.ndarray(array.shape, array.dtype, plane.empty_buffer(array.nbytes))
    moved[...] = array
    plane.mark_moved(moved.ctypes.data)
    # Memory that belongs to the array cannot be taken from it: views may use it.
    array.flags.writeable = False
    return moved


def _root(array: Any) -> Any:
    """The owner of the memory of an array and all its views."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array


def _empty(array: Any, root: Any) -> None:
    # The one way to take an array's memory from it: unpickle an empty one into it.
    # Views reach the memory by way of the array, so the memory stays as long as they.
    weakref.finalize(array, _let_go, root).atexit = False
    array.__setstate__((1, (0,), array.dtype, False, b""))


def _let_go(root: Any) -> None:
    """Called when the last that could use the memory is gone."""


def _move_tensor(plane: DataPlane, tensor: Any) -> Any:
    import torch

    if tensor.nbytes < THRESHOLD:
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
