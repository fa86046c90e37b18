# SPDX-License-Identifier: MIT
"""What actors print, line by line, with the actor's name in front."""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable

_TAIL_LINES = 20
_MAX_LINE = 1 << 16


class LineReader:
    """One output pipe of one actor. Whole lines go to `emit` as soon as they come."""

    def __init__(self, fd: int, emit: Callable[[bytes], None]) -> None:
        self.fd = fd
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._emit = emit
        self._partial = b""

    def read(self) -> bool:
        """Take what is there; False at the end of the pipe."""
        try:
            data = os.read(self.fd, 1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        lines = (self._partial + data).split(b"\n")
        self._partial = lines.pop()
        if self._partial and (not data or len(self._partial) > _MAX_LINE):
            lines.append(self._partial)
            self._partial = b""
        for line in lines:
            self.tail.append(line.decode(errors="replace"))
            self._emit(line)
        return bool(data)

    def finish(self) -> None:
        """Take what is left without waiting, then close."""
        poller = select.poll()
        poller.register(self.fd, select.POLLIN)
        for _ in range(1024):
            if not poller.poll(0) or not self.read():
                break
        if self._partial:
            self._emit(self._partial)
            self.tail.append(self._partial.decode(errors="replace"))
        os.close(self.fd)


class Terminal:
    """A descriptor of the driver's, which may be slow: never blocks the agent.

    What it cannot take is kept up to a bound; past that, `full` says so and the
    pipes of the actors are left unread, which slows those who print.
    """

    def __init__(self, fd: int, bound: int = 1 << 20) -> None:
        self.fd = fd
        self._bound = bound
        self._pending = bytearray()
        self._poller = select.poll()
        self._poller.register(fd, select.POLLOUT)

    @property
    def full(self) -> bool:
        return len(self._pending) > self._bound

    @property
    def waiting(self) -> bool:
        return bool(self._pending)

    def write(self, data: bytes) -> None:
        self._pending += data
        self.flush()

    def flush(self) -> None:
        # A pipe that polls writable takes PIPE_BUF bytes without blocking.
        while self._pending:
            events = self._poller.poll(0)
            if not events:
                return
            if events[0][1] & (select.POLLERR | select.POLLNVAL):
                self._pending.clear()
                return
            try:
                del self._pending[: os.write(self.fd, self._pending[:4096])]
            except BlockingIOError:
                return
            except OSError:
                self._pending.clear()
                return
