# SPDX-License-Identifier: MIT
"""The output and the messages of a guest's processes, on their way to the session's
home.

Invariant: a process that is faster than the channel is slowed down, and nothing of it
is lost. While too many bytes wait for the home, pipes and lines are left unread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from mooactor.control.channel import Channel
from mooactor.control.reliable import Data
from mooactor.host.eventloop import EventLoop, Line
from mooactor.host.output import LineReader
from mooactor.host.protocol import OfAProcess, OverLine, Printed
from mooactor.process.parcel import contents

_MOST_KEPT = 1 << 21
_MOST_PRINTED = 1 << 19  # bytes that the home has not handled yet: it takes 10 ms
_PER_LINE = 1 << 6  # bytes that a line costs beside its text, about
_PER_MESSAGE = 1 << 12
_PIPES_AT_ONCE = 32  # that are read again, in turn, once there is room
_RETRY_S = 0.01


class RelayedOutput:
    """See `logs.Output`.

    Invariants:

    * News wait behind little of what is printed: no pipe is read while the home has
      not handled `_MOST_PRINTED` bytes of it.
    * Of a dead process there waits here at most what its pipes held. It goes before
      what the living print, in turn with that of others that are dead.
    * All that is read of one pipe goes to the channel in that order.
    """

    def __init__(self, loop: EventLoop, channel: Channel) -> None:
        self._loop = loop
        self._channel = channel
        self._about: dict[LineReader, tuple[int, bytes]] = {}  # its stream, its prefix
        self._held_up: dict[LineReader, None] = {}  # in that order
        self._rests: deque[_Rest] = deque()  # those in front have waited for longer
        self._tries_again = False
        # Unhandled output, as bytes, and where in the channel each piece ends.
        self._printed = 0
        self._under_way: deque[tuple[int, int]] = deque()

    def begin(self, number: int, fd: int, prefix: bytes) -> LineReader:
        emit = partial(self._post, number, prefix)
        reader = LineReader(fd, emit, self._loop.later)
        self._about[reader] = number, prefix
        self._watch(reader)
        return reader

    def _post(self, number: int, prefix: bytes, lines: list[bytes]) -> None:
        text = b"\n".join(lines)
        self._channel.post(Printed(number, prefix, text))
        cost = len(text) + len(prefix) + _PER_LINE * len(lines) + _PER_MESSAGE
        self._printed += cost
        self._under_way.append((self._channel.posted, cost))

    def _watch(self, reader: LineReader) -> None:
        self._loop.watch(reader.fd, partial(self._read, reader))

    def _has_room(self) -> bool:
        handled = self._channel.handled
        while self._under_way and self._under_way[0][0] <= handled:
            self._printed -= self._under_way.popleft()[1]
        return self._printed < _MOST_PRINTED

    def _read(self, reader: LineReader) -> None:
        if self._rests or not self._has_room():
            self._loop.unwatch(reader.fd)
            self._held_up[reader] = None
            self._try_again()
        elif not reader.read():
            self._loop.unwatch(reader.fd)

    def end(self, reader: LineReader) -> None:
        """As `logs.Output` has it; what there is no room for waits, see `after`."""
        self._loop.unwatch(reader.fd)
        self._held_up.pop(reader, None)
        number, prefix = self._about.pop(reader)
        if lines := reader.rest():
            self._rests.append(_Rest(reader, number, prefix, deque(lines)))
            self._go_on()

    def after(self, readers: Sequence[LineReader], action: Callable[[], None]) -> None:
        """Call `action` once all of these, which were ended, has gone to the channel;
        perhaps at once."""
        for rest in self._rests:
            if rest.reader in readers:
                rest.then.append(partial(self.after, readers, action))
                return
        action()

    def _go_on(self) -> None:
        """Post what there is room for."""
        if not self._channel.is_open:
            self.clear()
        while self._rests and self._has_room():
            rest = self._rests.popleft()
            self._post(rest.number, rest.prefix, rest.lines.popleft())
            if rest.lines:
                self._rests.append(rest)
            for action in () if rest.lines else rest.then:
                action()
        if self._rests:
            self._try_again()

    def _try_again(self) -> None:
        if not self._tries_again:
            self._tries_again = True
            self._loop.later(_RETRY_S, self._again)

    def _again(self) -> None:
        self._tries_again = False
        self._go_on()
        if not self._rests and self._has_room():
            for reader in list(islice(self._held_up, _PIPES_AT_ONCE)):
                del self._held_up[reader]
                self._watch(reader)
        if self._held_up:
            self._try_again()

    def clear(self) -> None:
        """The channel is over: drop what waits."""
        self._rests.clear()


@dataclass(eq=False)
class _Rest:
    """The rest in the pipe of a dead process."""

    reader: LineReader
    number: int
    prefix: bytes
    lines: deque[list[bytes]]
    then: list[Callable[[], None]] = field(default_factory=list)


class RelayedLines:
    """Messages of processes over their lines, and the news of them.

    Invariants:

    * All that is posted of one process goes to the channel in that order.
    * No line is read while a message of its process waits here. So of each process
      there wait here at most those of one read, and all that a dead one had sent.
      Their parcels are no copies.
    * News wait for what their own process has said, and for nothing else.
    """

    def __init__(self, loop: EventLoop, channel: Channel) -> None:
        self._loop = loop
        self._channel = channel
        # Encoded, by number of a process. Those in front have waited for longer.
        self._waiting: dict[int, deque[list[Data]]] = {}
        self._paused: dict[int, Line] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def said(
        self, line: Line, number: int, data: bytes, fds: Sequence[int] = ()
    ) -> None:
        """Post what the process of that number has said: once there is room. The
        contents of `fds` become its parcels; the descriptors stay the caller's.

        Raises:
          Unsendable: it is too large.
          OSError: a parcel cannot be read.
        """
        message = OverLine(number, data, False, None, [])
        parts = self._channel.encoded(message, [contents(fd) for fd in fds])
        if number in self._waiting or not self._has_room():
            self._wait(number, parts)
            self._paused[number] = line
            self._loop.pause_reading(line)
        else:
            self._channel.post_encoded(parts)

    def news(self, message: OfAProcess) -> None:
        """Post what has become of a process."""
        number = message.number
        if number in self._waiting:
            self._wait(number, self._channel.encoded(message))
        else:
            self._channel.post(message)

    def _wait(self, number: int, parts: list[Data]) -> None:
        if not self._waiting:
            self._loop.later(_RETRY_S, self._drain)
        self._waiting.setdefault(number, deque()).append(parts)

    def _has_room(self) -> bool:
        return self._channel.queued <= _MOST_KEPT

    def _drain(self) -> None:
        """Post what there is room for, one message of each process in turn."""
        if not self._channel.is_open:
            self.clear()
        while self._waiting and self._has_room():
            number = next(iter(self._waiting))
            queue = self._waiting.pop(number)
            self._channel.post_encoded(queue.popleft())
            if queue:
                self._waiting[number] = queue
            elif (line := self._paused.pop(number, None)) is not None:
                self._loop.resume_reading(line)
        if self._waiting:
            self._loop.later(_RETRY_S, self._drain)

    def clear(self) -> None:
        """The channel is over: drop what waits."""
        self._waiting.clear()
        self._paused.clear()
