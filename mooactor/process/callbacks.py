# SPDX-License-Identifier: MIT
"""The thread that runs users' done-callbacks of Refs.

They may do anything there, also wait for calls. A callback is queued once, even if
requested several times; its exceptions are printed.
"""

from __future__ import annotations

import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator

_IDLE_S = 0.1


class Callbacks:
    """One per runtime. The thread starts when a callback is due, and ends soon after
    the last."""

    def __init__(self) -> None:
        self._queue: deque[Callable[[], object]] = deque()
        self._work = threading.Semaphore(0)
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, once: Iterator[Callable[[], object]]) -> None:
        """Queue the contents of `once`, which is then empty."""
        self._queue.extend(once)
        with self._lock:
            if self._queue and self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="mooactor-callbacks", daemon=True
                )
                self._thread.start()
        self._work.release()

    def _run(self) -> None:
        while True:
            due = self._work.acquire(timeout=_IDLE_S)
            while self._queue:
                try:
                    self._queue.popleft()()
                except Exception:
                    traceback.print_exc()
            with self._lock:
                if not self._queue and (self._closed or not due):
                    self._thread = None
                    return

    def close(self) -> None:
        """Wait for those that run, for a while."""
        self._closed = True
        thread = self._thread
        self._work.release()
        if thread is not None and thread is not threading.current_thread():
            thread.join(2.0)
