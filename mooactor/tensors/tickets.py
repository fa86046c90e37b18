# SPDX-License-Identifier: MIT
"""Memory that is read in place, over a fabric: see "memory of devices" in
cext/include/mooactor.h.

The owner has it registered (`share`), and sends a *ticket* in its place: a small block
of the data plane (`mark`) that shows, while somebody holds it, that the memory is in
use. The receiver gets it as a `Ticket`, and reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from mooactor.errors import ActorDied, ActorUnavailable
from mooactor.tensors.extension import ffi, lib
from mooactor.tensors.failures import error_for
from mooactor.tensors.fetches import Fetch

if TYPE_CHECKING:
    from mooactor.tensors.plane import DataPlane

_WHY_BYTES = 256


class Source(NamedTuple):
    """The address and key of registered memory, for its readers."""

    key: int
    base: int  # its remote address


def share(
    plane: DataPlane, address: int, nbytes: int, device: int | None = None
) -> Source:
    """Register memory of a CUDA device, or of this process, with the plane's fabric.

    It can be read, and read into, and must stay allocated until the plane is closed.
    The same memory is registered once.

    Raises:
      ActorUnavailable: there is no fabric, or it does not take this memory.
    """
    kind = lib.MOO_MEMORY_HOST if device is None else lib.MOO_MEMORY_CUDA
    key, base = ffi.new("uint64_t *"), ffi.new("uint64_t *")
    why = ffi.new("char[]", _WHY_BYTES)
    start = ffi.cast("void *", address)
    where = (start, nbytes, kind, device or 0)
    if lib.moo_device_share(plane.pointer, *where, key, base, why, _WHY_BYTES):
        raise ActorUnavailable(ffi.string(why).decode(errors="replace"))
    return Source(key[0], base[0])


def mark(plane: DataPlane, block: memoryview) -> None:
    """Make a ticket of a block of `empty_buffer`.

    Raises:
      ValueError: it is none.
    """
    with ffi.from_buffer(block) as data:
        if err := lib.moo_ticket(plane.pointer, data):
            raise error_for(err, "no ticket")


class Ticket:
    """The right to read another process's memory, until `close`, or until this goes.

    All its reads must have ended by then. Threads: one at a time.
    """

    __slots__ = ("_plane", "_descriptor", "_closed")

    def __init__(self, plane: DataPlane, descriptor: bytes) -> None:
        self._plane = plane
        self._descriptor = descriptor
        self._closed = False

    def begin(self, source: Source, offset: int, to: int, nbytes: int) -> Fetch:
        """Begin to read from `offset` of the owner's memory to the address `to`, which
        must lie in memory of `share` here. Does not wait.

        A result without an error means that the owner had lent it all the time.
        `ActorDied` means that the owner died or was cut off, which ends all its loans.

        Raises:
          ValueError: `to` is not in such memory.
        """
        begin = partial(self._begin, source, offset, to, nbytes)
        return Fetch(begin, 0, b"", _no_view, _read_error).begin()

    def _begin(
        self, source: Source, offset: int, to: int, nbytes: int, slot: Any
    ) -> None:
        err = lib.moo_device_fetch(
            self._plane.pointer,
            self._descriptor,
            len(self._descriptor),
            source.base + offset,
            source.key,
            ffi.cast("void *", to),
            nbytes,
            slot,
        )
        if err:
            raise error_for(err, "cannot read")

    def close(self) -> None:
        """Give it back. May be called twice."""
        if self._closed:
            return
        self._closed = True
        try:
            self._plane.discard(self._descriptor)
        except (ValueError, RuntimeError, ActorUnavailable):
            pass  # the plane is closed, or the parent's: all its leases are gone

    __del__ = close


# The error of reads that lost their connection, or whose lease ended with it.
_CUT_OFF = ("MOO_EPEER", "MOO_ETIMEOUT", "MOO_EUNREACHABLE", "MOO_ESTALE")


def _read_error(err: int) -> Exception:
    if err in [getattr(lib, name) for name in _CUT_OFF]:
        return ActorDied("the process that lent this memory died or was cut off")
    return error_for(err, "cannot read")


def _no_view(pointer: Any, nbytes: int) -> Iterator[Any]:
    raise AssertionError("what is read goes to the caller's memory")
