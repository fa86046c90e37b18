# SPDX-License-Identifier: MIT
"""Memory on its way out of this process: descriptors for others, and blocks to fill.

Invariant: what C gives out here is the caller's, or is given back. C fills a slot that
was there before, and was empty, so a signal handler that raises finds it in one of the
two states. It may do so right after C has copied gigabytes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any

from mooactor.tensors.extension import ffi, lib, missing
from mooactor.tensors.failures import export_error

if TYPE_CHECKING:
    from mooactor.tensors.plane import Buffer, DataPlane

if missing is None:
    _new_descriptor = functools.partial(
        ffi.new, ffi.typeof(f"uint8_t[{lib.MOO_DESCRIPTOR_BYTES}]")
    )
    _new_pointer = functools.partial(ffi.new, ffi.typeof("void **"))


def export(
    plane: DataPlane, buffers: Iterable[Buffer], peer: int, flags: int
) -> list[bytes]:
    """Descriptors of the buffers; if one fails, or a signal handler raises, none is
    exported. Errors: as `DataPlane.export`."""
    slots: list[Any] = []
    try:
        for buffer in buffers:
            slots.append(_new_descriptor())
            _fill(plane, slots[-1], buffer, peer, flags)
        return [bytes(ffi.buffer(slot)) for slot in slots]
    except BaseException:
        take_back(plane, slots)
        raise


def take_back(plane: DataPlane, descriptors: Iterable[Any]) -> None:
    """End the leases of descriptors that were never sent. Slots that C has not filled
    are none."""
    for descriptor in descriptors:
        lib.moo_revoke(plane.pointer, descriptor, len(descriptor))


def _fill(plane: DataPlane, slot: Any, buffer: Buffer, peer: int, flags: int) -> None:
    if type(buffer) is PickleBuffer:
        buffer = buffer.raw()
    with ffi.from_buffer(buffer) as data:
        err = lib.moo_export(plane.pointer, data, len(data), peer, flags, slot)
        if err:
            raise export_error(err, plane, len(data), peer)


def allocated(
    plane: DataPlane, nbytes: int, function: Callable[..., int], *args: Any
) -> memoryview:
    """The block with whose address the function of C fills its last argument.

    Raises:
      OutOfMemory: the limit is reached.
    """
    views: list[memoryview] = []
    slot = _new_pointer()
    try:
        err = function(*args, slot)
        if err:
            raise export_error(err, plane, nbytes, plane.process_id)
        # In one step the block gets its finalizer and its place here.
        blocks = map(ffi.gc, (slot[0],), (plane.drop,))
        buffers: Iterable[bytes] = map(ffi.buffer, blocks, (nbytes,))
        views.extend(map(memoryview, buffers))
        return views[0]
    except BaseException:
        if slot[0] and not views:
            plane.drop(slot[0])
        raise
