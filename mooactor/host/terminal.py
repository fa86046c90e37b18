# SPDX-License-Identifier: MIT
"""The driver's stdout or stderr, to which the agent writes what actors print.

The reader at the other end may stop for hours: a pager, a terminal after Ctrl-S, a
stopped program. Invariants:

* Writing never blocks. A pipe or terminal is opened once more, for a non-blocking
  description of the agent's own: the flag on the driver's would be the driver's, too.
* The bytes that wait to be written are bounded. Past half of the bound the terminal is
  `full`, and further lines should wait. Lines that are added all the same (the last
  words of an actor) displace the oldest lines in the end.
* Lines are written whole or dropped whole, in order. The number of those that were
  dropped is written in their place.
* That a file takes no more, such as one on a full disk, is told once. A reader that has
  gone is no error.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat
import time
from collections import deque
from collections.abc import Callable

_PIPE_BUF = 4096  # bytes that a pipe takes as a whole or not at all
_BOUND = 1 << 21
_PATIENCE_S = 1.0


class Terminal:
    """One of the two. `flush` when `fd` may be writable again."""

    def __init__(
        self,
        fd: int,
        bound: int = _BOUND,
        on_failure: Callable[[str], None] = lambda why: None,
    ) -> None:
        self._bound = bound
        self._on_failure = on_failure
        self._failed = False
        self.fd, self._write = writer(fd)
        self._lines: deque[bytes] = deque()
        self._piece = b""  # is being written
        self._size = 0
        self._dropped = 0
        self._moved = 0.0  # when it last took bytes, or had none to take

    @property
    def waiting(self) -> bool:
        """Whether it has not taken all lines yet."""
        return bool(self._piece or self._lines or self._dropped)

    @property
    def full(self) -> bool:
        """Whether more than half of the bound waits to be written."""
        return self._size > self._bound // 2

    def stalls_in(self) -> float:
        """Seconds until it counts as stalled: it is full and has taken nothing for so
        long that nobody should wait for it. 0: it does."""
        if not self.full:
            return _PATIENCE_S
        return max(0.0, self._moved + _PATIENCE_S - time.monotonic())

    def add(self, *lines: bytes) -> None:
        """Write lines, each of which ends with a newline, as soon as that is
        possible."""
        if not self.waiting:
            self._moved = time.monotonic()
        for line in lines:
            if self._size + len(line) > self._bound:
                self.flush()
            self._add(line)
        self.flush()

    def _add(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)
        while self._size > self._bound and len(self._lines) > 1:
            self._size -= len(self._lines.popleft())
            self._dropped += 1

    def flush(self) -> bool:
        """Write as much as it takes; whether that was anything."""
        some = False
        while self._piece or self._take_piece():
            try:
                written = self._write(self._piece)
            except BlockingIOError:
                return some
            except OSError as error:
                self._forget()
                self._tell(error)
                return some
            self._piece = self._piece[written:]
            self._size -= written
            self._moved, some = time.monotonic(), True
        return some

    def _take_piece(self) -> bool:
        """The next whole lines, as many as leave together."""
        piece = bytearray()
        if self._dropped:
            piece += lost(self._dropped)
            self._size += len(piece)
            self._dropped = 0
        while self._lines and (
            not piece or len(piece) + len(self._lines[0]) <= _PIPE_BUF
        ):
            piece += self._lines.popleft()
        self._piece = bytes(piece)
        return bool(piece)

    def _tell(self, error: OSError) -> None:
        if not self._failed and not isinstance(error, BrokenPipeError):
            self._failed = True
            self._on_failure(error.strerror or str(error))

    def _forget(self) -> None:
        self._lines.clear()
        self._piece = b""
        self._size = self._dropped = 0

    def drain(self, patience_s: float, until: float) -> None:
        """Write the waiting lines, until so much time passes without any progress, and
        at the latest until `until` (monotonic)."""
        poller = select.poll()
        poller.register(self.fd, select.POLLOUT)
        while self.waiting:
            if not self.flush():
                left = min(patience_s, until - time.monotonic())
                if left <= 0 or not poller.poll(left * 1000):
                    return
                if not self.flush():
                    time.sleep(0.001)  # it was reported writable, and is not

    def give_up(self) -> int:
        """Drop the lines that it has not taken; return their number."""
        number = self._dropped + len(self._lines) + bool(self._piece)
        self._forget()
        return number


def lost(count: int) -> bytes:
    """The line that stands for those that were dropped."""
    lines = "1 line of actors is" if count == 1 else f"{count} lines of actors are"
    return f"mooactor: {lines} lost, because nobody read them in time\n".encode()


def writer(fd: int) -> tuple[int, Callable[[bytes], int]]:
    """A writer to the file of `fd` that does not block."""
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        mode = 0  # it is closed, and writing will say so
    if stat.S_ISSOCK(mode):
        sock = socket.socket(fileno=os.dup(fd))
        return sock.fileno(), lambda data: sock.send(data, socket.MSG_DONTWAIT)
    if stat.S_ISFIFO(mode) or os.isatty(fd):
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            own = os.open(f"/proc/self/fd/{fd}", flags)
            return own, lambda data: os.write(own, data)
    # A file takes everything. A pipe or terminal of another user, left to this one,
    # cannot be opened anew: then look first, and write little.
    poller = select.poll()
    poller.register(fd, select.POLLOUT)

    def write(data: bytes) -> int:
        if not poller.poll(0):
            raise BlockingIOError
        return os.write(fd, data[:_PIPE_BUF])

    return fd, write
