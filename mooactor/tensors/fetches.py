# SPDX-License-Identifier: MIT
"""Memory of another process on its way into this one: an `Import` of this host's is
mapped at once, a `Fetch` from another host may take a while."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from mooactor.errors import Cancelled
from mooactor.tensors.extension import ffi, lib
from mooactor.tensors.failures import import_error

if TYPE_CHECKING:
    from mooactor.tensors.plane import DataPlane


# The GIL is released while C waits; the time between two checks for signals.
_SLICE_MS = 50
# The caller's memory of fetches that were not freed yet, by the fetch's address. Held
# here, because C writes to it until the fetch is freed, and either may be collected
# first.
_pinned: dict[int, Any] = {}


def new_slot(pins: bool) -> Any:
    """Where C puts the address of a `moo_fetch`. When it goes, or is released, that is
    ended; the caller's memory is let go if it `pins` any. Otherwise that takes no step
    of Python's, which would lose the exception of a signal handler."""
    return ffi.gc(ffi.new("moo_fetch **"), _free if pins else lib.moo_fetch_free_at)


def _free(slot: Any) -> None:
    if slot[0]:
        address = int(ffi.cast("uintptr_t", slot[0]))
        lib.moo_fetch_free(slot[0])
        _pinned.pop(address, None)


def pin(fetch: Any, memory: Any) -> None:
    """Keep `memory` until `free` of the fetch."""
    _pinned[int(ffi.cast("uintptr_t", fetch))] = memory


class Fetch:
    """Received data that may still be on its way; made by `DataPlane.begin`.

    A signal handler that raises may cut any method short: what is here by then is kept,
    so the next call of it goes on. One that waits may call any method, too, at any
    point. Dropping it ends it, as `cancel` does. Threads: wait and take the result in
    any one thread; `cancel` must not run at the same time as them.
    """

    __slots__ = (
        "tag",
        "_slot",
        "_begin",
        "_into",
        "_view",
        "_error",
        "_out",
        "_size",
        "_views",
        "_made",
        "_result",
    )

    def __init__(
        self,
        begin: Callable[[Any], None],
        tag: int,
        into: Any,
        view: Callable[[Any, int], Iterator[Any]],
        error: Callable[[int], Exception],
    ) -> None:
        """`begin` has C begin it, and put it into the slot that it is given. `view`
        makes the result of an address and a size once it is iterated over, `error` the
        exception of a `moo_err`."""
        self.tag = tag
        self._slot = new_slot(into is not None)
        self._begin = begin
        self._into = into
        self._view = view
        self._error = error
        self._out, self._size = ffi.new("void **"), ffi.new("size_t *")
        self._views: list[Iterator[Any]] = []  # the first one counts
        self._made: list[Any] = []
        self._result: Any = None  # or the exception

    @property
    def begun(self) -> bool:
        """Whether it was, and is not cancelled."""
        return self._slot is not None and bool(self._slot[0])

    def begin(self) -> Fetch:
        """Begin it, if it was not begun yet. Errors: as `DataPlane.begin`."""
        slot = self._slot
        if slot is not None and not slot[0]:
            self._begin(slot)
        return self

    def wait(self, seconds: float) -> bool:
        """Whether it is done, waiting for that up to `seconds`.

        It may have failed: `result` says so.
        """
        end = time.monotonic() + seconds
        while not self._look(0):
            left = end - time.monotonic()
            if left <= 0:
                return False
            self._look(min(_SLICE_MS, int(left * 1000) + 1))
        return True

    def result(self, seconds: float | None = None) -> Any:
        """The bytes, writable and private, or the caller's memory with them in it; a
        `Ticket` as from `DataPlane.import_`.

        Waits for them: up to `seconds`, or for as long as their owner lives and
        keeps sending. May be called again.

        Raises:
          TimeoutError: not yet.
          ActorDied: their owner died or was cut off before all had come.
          ActorUnavailable: their owner did not connect to this process in time, but may
            still live. The message has the addresses of both.
          InternalError: the descriptor was fetched or revoked before.
          Cancelled: by `cancel`.
        """
        if seconds is None:
            while not self._look(_SLICE_MS):
                pass
        elif not self.wait(seconds):
            raise TimeoutError(f"data is still on its way after {seconds} s")
        if isinstance(self._result, Exception):
            raise self._result
        assert self._result is not None
        return self._result

    def cancel(self) -> None:
        """End it. Nothing is written any more to `out`; the owner gets its memory
        back. Memory that `result` returned stays valid. May be called twice."""
        slot, out, made = self._slot, self._out, self._made
        if out[0] and not made:  # taking it was cut short: so it gets its finalizer
            self._make()
        if self._result is None:
            self._result = Cancelled("this fetch was cancelled")
        self._slot = None
        if slot is not None:
            ffi.release(slot)

    def _make(self) -> None:
        """The memory gets its finalizer and its place here in one step, and once."""
        if not self._views:
            self._views.append(self._view(self._out[0], self._size[0]))
        self._made.extend(self._views[0])

    def _look(self, timeout_ms: int) -> bool:
        if self._result is not None:
            return True
        out, made, slot, err = self._out, self._made, self._slot, 0
        if not out[0] and not made and slot is not None:
            err = lib.moo_fetch_wait(slot[0], timeout_ms, out, self._size)
        if self._result is not None:
            return True  # a signal handler has taken it meanwhile
        if err == lib.MOO_ETIMEOUT:
            return False
        if err and not out[0]:
            self._result = self._error(err)
        elif self._into is None:
            self._make()
            self._result = made[0]
        else:
            self._result = memoryview(self._into).cast("B")
        return True


class Imported:
    """One descriptor, which can be imported once; see `Import`.

    A signal handler that raises may cut `result` short at any point. The parts that
    are here by then are kept, so the next call of it goes on. A handler that waits may
    call it, too, at any point. Dropping this gives it back.
    """

    __slots__ = (
        "_plane",
        "_descriptor",
        "_out",
        "_size",
        "_fetches",
        "_views",
        "_result",
    )

    def __init__(self, plane: DataPlane, descriptor: bytes) -> None:
        self._plane = plane
        self._descriptor = descriptor
        self._out = ffi.new("void **")
        self._size = ffi.new("size_t *")
        # Of these the first one counts.
        self._fetches: list[Fetch] = []  # if it comes from another host
        self._views: list[Iterator[Any]] = []
        self._result: list[Any] = []

    def result(self) -> Any:
        """As `DataPlane.import_`. May be called again, for the same result."""
        if not self._result:
            if not self._out[0]:
                if self._plane.is_remote(self._descriptor):
                    return self._fetched()
                self._import()
            if self._out[0]:
                self._finish()
        return self._result[0]

    def _import(self) -> None:
        descriptor = self._descriptor
        err = lib.moo_import_once(
            self._plane.pointer,
            descriptor,
            len(descriptor),
            lib.MOO_CONTACT_MS,
            self._out,
            self._size,
        )
        if err == lib.MOO_EINVAL and (ticket := self._plane.ticket(descriptor)):
            self._result.append(ticket)
        elif err:
            raise import_error(err)

    def _finish(self) -> None:
        """The memory gets its finalizer and its place here in one step, and once: a
        view is made when it is iterated over."""
        if not self._views:
            self._views.append(self._plane.view(self._out[0], self._size[0]))
        self._result.extend(self._views[0])
        self.__class__ = Imported

    def _fetched(self) -> Any:
        if not self._fetches:
            self._fetches.append(self._plane.fetching(self._descriptor))
        return self._fetches[0].begin().result()


class Import(Imported):
    """One that may have memory without a finalizer; made by `DataPlane.importing`.

    Once it has its result it becomes an `Imported`, which has no ``__del__``: Python
    drops a Ctrl-C that comes while it runs one, and each array has an import.
    """

    __slots__ = ()

    def __del__(self) -> None:
        try:
            out, result = self._out, self._result
        except AttributeError:
            return  # a signal handler cut `__init__` short
        if out[0] and not result:
            self._plane.drop(out[0])
