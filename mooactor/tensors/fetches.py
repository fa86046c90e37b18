# SPDX-License-Identifier: MIT
"""An import under way: its bytes come from another host."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from mooactor.errors import Cancelled
from mooactor.tensors.extension import ffi, lib

# The GIL is released while C waits; the time between two checks for signals.
_SLICE_MS = 50
# The caller's memory of fetches that were not freed yet, by the fetch's address. Held
# here, because C writes to it until the fetch is freed, and either may be collected
# first.
_pinned: dict[int, Any] = {}


def free(fetch: Any) -> None:
    """End a `moo_fetch`, then let go of the caller's memory."""
    address = int(ffi.cast("uintptr_t", fetch))
    lib.moo_fetch_free(fetch)
    _pinned.pop(address, None)


class Fetch:
    """Received data that may still be on its way; made by `DataPlane.begin`.

    Dropping it ends it, as `cancel` does. Threads: wait and take the result in any
    one thread; `cancel` must not run at the same time as them.
    """

    __slots__ = ("tag", "_fetch", "_into", "_view", "_error", "_result")

    def __init__(
        self,
        fetch: Any,
        tag: int,
        into: Any,
        view: Callable[[Any, int], Any],
        error: Callable[[int], Exception],
    ) -> None:
        """`view` makes the result of an address and a size, `error` the exception
        of a `moo_err`."""
        self.tag = tag
        self._fetch = fetch
        self._into = into
        self._view = view
        self._error = error
        self._result: Any = None  # or the exception

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
        fetch, self._fetch = self._fetch, None
        if self._result is None:
            self._result = Cancelled("this fetch was cancelled")
        if fetch is not None:
            ffi.release(fetch)

    def _look(self, timeout_ms: int) -> bool:
        if self._result is not None:
            return True
        out, size = ffi.new("void **"), ffi.new("size_t *")
        err = lib.moo_fetch_wait(self._fetch, timeout_ms, out, size)
        if err == lib.MOO_ETIMEOUT:
            return False
        if err:
            self._result = self._error(err)
        elif self._into is None:
            self._result = self._view(out[0], size[0])
        else:
            self._result = memoryview(self._into).cast("B")
        return True


def pin(fetch: Any, memory: Any) -> None:
    """Keep `memory` until `free` of the fetch."""
    _pinned[int(ffi.cast("uintptr_t", fetch))] = memory
