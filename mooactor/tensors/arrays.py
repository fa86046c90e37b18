# SPDX-License-Identifier: MIT
"""The conversion of a numpy array to one flat buffer and a few words, and back."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pickle import PickleBuffer
from typing import Any

import numpy as np

from mooactor.tensors.codec import (
    THRESHOLD,
    axes_by_stride,
    has_repeats,
    is_dense,
    without_repeats,
)
from mooactor.tensors.plane import MEMORY_TYPES, DataPlane

_Array = np.ndarray[Any, np.dtype[Any]]

# Kinds of dtype that `dtype.str` names completely and the buffer protocol knows.
_PLAIN_KINDS = frozenset("biufc")
# Those that it names completely, but that must be handled as bytes.
_NAMED_KINDS = frozenset("mMSU")


def reduce_array(array: _Array) -> Any:
    """The reduction of an exact `numpy.ndarray`.

    Arrays that hold Python objects are left to numpy's own pickling.
    """
    dtype = array.dtype
    if dtype.kind in _PLAIN_KINDS:
        if array.flags.c_contiguous:
            return rebuild_array, (_buffer(array), _dtype_word(dtype), array.shape)
    elif dtype.hasobject:
        return NotImplemented
    return _reduce_laid_out(array)


def _reduce_laid_out(array: _Array) -> Any:
    shape, strides = array.shape, array.strides
    if array.size and has_repeats(shape, strides):
        kept = array[without_repeats(shape, strides)]
        return rebuild_repeated, (kept, shape)
    if array.flags.c_contiguous or not is_dense(shape, strides, array.itemsize):
        flat, order = np.ascontiguousarray(array).reshape(-1), None
    else:
        flat, order = _in_memory_order(array), strides
    data = _buffer(flat.view(np.uint8) if flat.size else flat)
    return rebuild_array, (data, _dtype_word(array.dtype), shape, order)


def _in_memory_order(array: _Array) -> _Array:
    # A dense array is C-contiguous once its axes are sorted by stride.
    strides, shape = array.strides, array.shape
    axes = axes_by_stride(shape, strides)
    return array.transpose(axes).reshape(-1)


def _buffer(flat: _Array) -> PickleBuffer | bytearray:
    if flat.nbytes < THRESHOLD:
        return bytearray(flat.tobytes())
    exporter: Any = flat  # before Python 3.12 its type does not say Buffer
    if not flat.flags.writeable:
        exporter = np.asarray(_Writable(flat))
    return PickleBuffer(exporter)


class _Writable:
    """The memory of a read-only array, declared writable.

    Otherwise pickle would make the received array read-only; but it is the receiver's
    own.
    """

    def __init__(self, array: _Array) -> None:
        self.array = array  # keeps the memory alive
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {
            "version": 3,
            "shape": (array.nbytes,),
            "typestr": "|u1",
            "data": (address, False),
        }


def _dtype_word(dtype: np.dtype[Any]) -> str | np.dtype[Any]:
    named = dtype.kind in _PLAIN_KINDS or dtype.kind in _NAMED_KINDS
    return dtype.str if named and dtype.metadata is None else dtype


def rebuild_array(
    data: Any,
    dtype: str | np.dtype[Any],
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
) -> _Array:
    """A writable array over `data`; the inverse of `reduce_array`."""
    if type(data) is bytes:  # a read-only buffer that was pickled in band
        data = bytearray(data)
    return np.ndarray(shape, dtype, data, 0, strides)


def rebuild_repeated(kept: _Array, shape: tuple[int, ...]) -> _Array:
    """Expand the dimensions that were sent once, into memory for each element: the
    result is writable, and one write must not show in other elements."""
    return np.broadcast_to(kept, shape).copy()


# -- moving ----------------------------------------------------------------


def move(plane: DataPlane, array: Any) -> Any:
    """The work behind `moo.move`, for an exact array without Python objects; another
    object is returned as it is."""
    if type(array) is not np.ndarray or array.dtype.hasobject:
        return array
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


HANDLERS: dict[type, Callable[[Any], Any]] = {np.ndarray: reduce_array}
