# SPDX-License-Identifier: MIT
"""The output of actors, line by line, with the actor's name in front."""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable

TAIL_LINES = 20
_MOST_OF_A_TAIL = 1 << 11  # bytes of each of them: its end
_PIECE = 1 << 16  # bytes that are read at once, and that an open line may have
MOST_OF_A_LINE = 2 * _PIECE  # bytes


class LineReader:
    """One output pipe of one actor. Whole lines go to `emit` as soon as they arrive."""

    def __init__(self, fd: int, emit: Callable[[bytes], None]) -> None:
        self.fd = fd
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._emit = emit
        self._partial = b""

    def read(self) -> bool:
        """Read the bytes that are there; False at the end of the pipe."""
        try:
            data = os.read(self.fd, _PIECE)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        lines = (self._partial + data).split(b"\n")
        self._partial = lines.pop()
        if self._partial and (not data or len(self._partial) > _PIECE):
            lines.append(self._partial)
            self._partial = b""
        for line in lines:
            self._keep(line)
            self._emit(line)
        return bool(data)

    def finish(self) -> None:
        """Read the rest without waiting, then close."""
        poller = select.poll()
        poller.register(self.fd, select.POLLIN)
        for _ in range(1024):
            if not poller.poll(0) or not self.read():
                break
        if self._partial:
            self._emit(self._partial)
            self._keep(self._partial)
        os.close(self.fd)

    def _keep(self, line: bytes) -> None:
        """The last lines go to all who watch the actor, and stay with its record."""
        cut = "…" if len(line) > _MOST_OF_A_TAIL else ""
        self.tail.append(cut + line[-_MOST_OF_A_TAIL:].decode(errors="replace"))
