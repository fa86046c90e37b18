# SPDX-License-Identifier: MIT
"""The output of a guest's processes, on its way to the session's home.

Invariant: a process that prints faster than the channel carries is slowed down, and
loses no line. While the channel has too many bytes to send, the pipes are left unread.
"""

from __future__ import annotations

from functools import partial

from mooactor.control.channel import Channel
from mooactor.host.eventloop import EventLoop
from mooactor.host.output import LineReader

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
