# SPDX-License-Identifier: MIT
"""The output and the messages of a guest's processes, on their way to the session's
home.

Invariant: a process that is faster than the channel is slowed down, and nothing of it
is lost, for its pipes and its line are left unread while too much waits for the home.
All that is read of it goes to the channel at once, so it stays in that order, and the
channel counts none of it: it is what one read of each had, and all that dead ones had
left in their sockets and pipes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial

from mooactor.control.channel import Channel
from mooactor.host.eventloop import EventLoop, Line
from mooactor.host.output import LineReader, Pipes, Printer
from mooactor.host.protocol import OverLine, Printed
from mooactor.process.parcel import contents

_MOST_KEPT = 1 << 21
_MOST_PRINTED = 1 << 19  # bytes that the home has not handled yet: it takes 10 ms
_PER_LINE = 1 << 6  # bytes that a line costs beside its text, about
_PER_MESSAGE = 1 << 12
_RETRY_S = 0.01


class OutputRelay:
    """As `logs.Logs`. News wait behind little of what the living print: no pipe is
    read while the home has not handled `_MOST_PRINTED` bytes of it."""

    def __init__(self, loop: EventLoop, channel: Channel) -> None:
        self._loop = loop
        self._channel = channel
        self._pipes = Pipes(loop, self._has_room)
        # Unhandled output, as bytes, and where in the channel each piece ends.
        self._printed = 0
        self._under_way: deque[tuple[int, int]] = deque()

    def begin(self, number: int, fd: int, printer: Printer) -> LineReader:
        emit = partial(self._post, number, printer)
        reader = LineReader(fd, emit, self._loop.later)
        self._pipes.watch(reader)
        return reader

    def _post(self, number: int, printer: Printer, lines: list[bytes]) -> None:
        text = b"\n".join(lines)
        self._channel.post(Printed(number, printer, text), patient=True)
        cost = len(text) + _PER_LINE * len(lines) + _PER_MESSAGE
        self._printed += cost
        self._under_way.append((self._channel.posted, cost))

    def _has_room(self) -> bool:
        handled = self._channel.handled
        while self._under_way and self._under_way[0][0] <= handled:
            self._printed -= self._under_way.popleft()[1]
        return self._printed < _MOST_PRINTED

    def end(self, reader: LineReader) -> None:
        """As `logs.Logs` has it."""
        self._pipes.unwatch(reader)
        reader.finish()


class LineRelay:
    """Messages of processes over their lines."""

    def __init__(self, loop: EventLoop, channel: Channel) -> None:
        self._loop = loop
        self._channel = channel
        self._paused: dict[Line, None] = {}
        self._due = False  # it looks again

    def said(
        self, line: Line, number: int, data: bytes, fds: Sequence[int] = ()
    ) -> None:
        """Post what the process of that number has said. The contents of `fds` become
        its parcels, which are no copies; the descriptors stay the caller's.

        Raises:
          Unsendable: it is too large.
          OSError: a parcel cannot be read.
        """
        message = OverLine(number, data, False, None, [])
        self._channel.post(message, list(map(contents, fds)), patient=True)
        if self._channel.queued > _MOST_KEPT:
            self._loop.pause_reading(line)
            self._paused[line] = None
            self._look_again()

    def _look_again(self) -> None:
        if self._paused and not self._due and self._channel.is_open:
            self._due = True
            self._loop.later(_RETRY_S, self._look)

    def _look(self) -> None:
        """Read them again, one after the other, while there is room."""
        self._due = False
        while self._paused and self._channel.queued <= _MOST_KEPT:
            line = next(iter(self._paused))
            del self._paused[line]
            self._loop.resume_reading(line)
            self._loop.read_line(line)
        self._look_again()
