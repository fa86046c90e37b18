# SPDX-License-Identifier: MIT
"""What a guest's processes print and say, on its way to the session's home.

Invariant: a process that is faster than the channel is slowed down, and nothing of it
is lost. While the channel has too many bytes to send, pipes and lines are left unread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial

from mooactor.control.channel import Channel
from mooactor.control.lifeline import Message
from mooactor.control.reliable import Data
from mooactor.host.eventloop import EventLoop, Line
from mooactor.host.output import LineReader
from mooactor.host.parcels import contents

_MOST_KEPT = 1 << 21
_RETRY_S = 0.02


class RelayedOutput:
    """See `logs.Output`."""

    def __init__(self, loop: EventLoop, channel: Channel) -> None:
        self._loop = loop
        self._channel = channel
        self._readers: set[LineReader] = set()

    def begin(self, number: int, fd: int, prefix: bytes) -> LineReader:
        reader = LineReader(fd, partial(self._emit, number, prefix))
        self._readers.add(reader)
        self._watch(reader)
        return reader

    def _emit(self, number: int, prefix: bytes, line: bytes) -> None:
        message = {"what": "log", "stream": number, "prefix": prefix, "line": line}
        self._channel.post(message)

    def _watch(self, reader: LineReader) -> None:
        if reader in self._readers:
            self._loop.watch(reader.fd, partial(self._read, reader))

    def _read(self, reader: LineReader) -> None:
        if self._channel.queued > _MOST_KEPT:
            self._loop.unwatch(reader.fd)
            self._loop.later(_RETRY_S, partial(self._watch, reader))
        elif not reader.read():
            self._loop.unwatch(reader.fd)

    def end(self, reader: LineReader) -> None:
        self._readers.discard(reader)
        self._loop.unwatch(reader.fd)
        reader.finish()


class RelayedLines:
    """What processes say over their lines, and the news of them.

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

    def said(self, line: Line, message: Message, fds: Sequence[int] = ()) -> None:
        """Post what a process has said: once there is room. The contents of `fds`
        become its parcels; the descriptors stay the caller's.

        Raises:
          NotPlain: it is too large, or too deep.
          OSError: a parcel cannot be read.
        """
        number = message["number"]
        parts = self._channel.encoded(message, [contents(fd) for fd in fds])
        if number in self._waiting or not self._has_room():
            self._wait(number, parts)
            self._paused[number] = line
            self._loop.pause_reading(line)
        else:
            self._channel.post_encoded(parts)

    def news(self, message: Message) -> None:
        """Post what has become of a process."""
        number = message["number"]
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
