# SPDX-License-Identifier: MIT
"""Answers of a session's home to commands: ``mooactor status``, ``logs`` and ``stop``.

They come over channels, from somebody who has the cluster's key; `protocol` has the
messages. Homes of other sessions of the namespace come here, too: see `namespaces`.

The latest output of actors is kept, for ``mooactor logs``.

Invariant: no line that a reader was to have is missing in silence. Those that were kept
when it asked are all sent, before any later one. Later ones are left out while
`_MOST_QUEUED` bytes wait in its channel, and it is told how many, at that place.

The output that is kept has a bound in lines and in bytes: a progress bar may be one
line of 64 KiB after another. Of one actor the oldest lines make way, and of all actors
those of the one that has been silent for longest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import astuple

from mooactor.control.channel import Channel
from mooactor.control.messages import Message
from mooactor.host.members import Stop
from mooactor.host.output import Printer
from mooactor.host.protocol import (
    TO_DESK,
    AskNames,
    End,
    LeftOut,
    Line,
    Logs,
    Refused,
    SessionStatus,
    Status,
    StatusRow,
)
from mooactor.process.exits import ExitRecord, in_words
from mooactor.process.protocol import Ended
from mooactor.times import GRACE_S

if TYPE_CHECKING:
    from mooactor.host.home import Home
    from mooactor.host.lifetimes import Supervised
    from mooactor.host.namespaces import Neighbor

_PATIENCE_S = 1.0  # for processes that are busy
_MOST_LINES = 1000  # kept of one actor
_MOST_OF_ONE = 1 << 23  # bytes of these
_MOST_OF_ALL = 1 << 26
_PER_LINE = 128  # bytes that each costs beside its text, about
_MOST_ACTORS = 1000  # of which lines are kept: those that printed last
_MOST_QUEUED = 1 << 24  # bytes in the channel of a reader


# Of stdout (1) or stderr (2), the text, and the process that has printed it.
_Line = tuple[int, bytes, Printer]


def _cost(line: _Line) -> int:
    return _PER_LINE + len(line[1])


class Reader:
    """One who asked for the lines of the actor of a name."""

    def __init__(self, name: str, channel: Channel, lines: Iterable[_Line]) -> None:
        """`lines` are those that are kept: it gets them all."""
        self.name = name
        self.channel = channel
        self.follows = False  # those to come, too
        self.has_some = False
        self._left_out = 0  # since the last one that it was sent
        for line in lines:
            self._post(*line)

    def add(self, lines: Sequence[_Line]) -> None:
        """New lines."""
        if self.channel.queued > _MOST_QUEUED:
            self._left_out += len(lines)
            return
        self._tell_of_gap()
        for line in lines:
            self._post(*line)

    def end(
        self, found: bool, label: str | None = None, why: str | None = None
    ) -> None:
        """Nothing comes after this."""
        self.follows = False
        self._tell_of_gap()
        self.channel.post(End(found, label, why), patient=True)

    def _post(self, number: int, text: bytes, printer: Printer) -> None:
        self.has_some = True
        line = text.decode(errors="replace")
        self.channel.post(Line(line, number, *astuple(printer)), patient=True)

    def _tell_of_gap(self) -> None:
        if self._left_out:
            self.channel.post(LeftOut(self._left_out), patient=True)
            self._left_out = 0


class _Kept:
    """The last lines of one actor, and the bytes that they take."""

    def __init__(self) -> None:
        self.lines: deque[_Line] = deque()
        self.bytes = 0

    def add(self, line: _Line) -> None:
        self.lines.append(line)
        self.bytes += _cost(line)
        while self.bytes > _MOST_OF_ONE or len(self.lines) > _MOST_LINES:
            self.drop()

    def drop(self) -> None:
        """The oldest makes way."""
        self.bytes -= _cost(self.lines.popleft())


class History:
    """The last lines that each actor has printed, also of those that are dead."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}  # in the order of their last lines
        self._bytes = 0
        self._readers: list[Reader] = []

    def add(self, number: int, printer: Printer, lines: Iterable[bytes]) -> None:
        """A process has printed lines on its stdout (1) or stderr (2)."""
        new, label = [(number, line, printer) for line in lines], printer.label
        kept = self._take(label) or _Kept()
        for line in new:
            kept.add(line)
        self._kept[label] = kept
        self._bytes += kept.bytes
        self._make_way()
        for reader in self._readers:
            if reader.follows and is_meant(label, reader.name):
                reader.add(new)

    def _take(self, label: str) -> _Kept | None:
        kept = self._kept.pop(label, None)
        self._bytes -= 0 if kept is None else kept.bytes
        return kept

    def _make_way(self) -> None:
        """Drop the oldest lines, if there are too many."""
        while len(self._kept) > _MOST_ACTORS:
            self._take(next(iter(self._kept)))
        while self._bytes > _MOST_OF_ALL:
            label, oldest = next(iter(self._kept.items()))
            self._bytes -= oldest.bytes
            oldest.drop()
            self._bytes += oldest.bytes
            if not oldest.lines:
                del self._kept[label]

    def read(self, name: str, channel: Channel) -> Reader:
        """A reader with the lines of the actor of this name. Then either `Reader.end`
        is called, or it follows."""
        found = [kept for label, kept in self._kept.items() if is_meant(label, name)]
        reader = Reader(name, channel, [line for kept in found for line in kept.lines])
        self._readers.append(reader)
        return reader

    @property
    def followed(self) -> bool:
        """Whether somebody follows an actor."""
        return any(reader.follows for reader in self._readers)

    def forget(self, channel: Channel) -> None:
        """Nobody reads there any more."""
        self._readers = [one for one in self._readers if one.channel is not channel]

    def end(self, label: str, why: str, rest: Collection[str]) -> None:
        """An actor will not run again. Those who follow it hear of that, unless their
        name means one of the `rest`, the labels of those that are not over."""
        for reader in self._readers:
            name = reader.name
            others = any(is_meant(other, name) for other in rest)
            if reader.follows and is_meant(label, name) and not others:
                reader.end(True, label, why)

    def close(self, why: str) -> None:
        """The session is over, `why` says how."""
        for reader in self._readers:
            if reader.follows:
                reader.end(True, reader.name, why)
        self._readers.clear()


def is_meant(label: str, name: str) -> bool:
    """Whether an actor is meant: by its name, or by its label, ``CLASS:NAME``. A name
    may have colons."""
    _, colon, named = label.partition(":")
    return label == name or (bool(colon) and named == name)


class Desk:
    """One for each home that has joined a cluster; it hears all channels that others
    open."""

    def __init__(self, home: Home, mark: str, driver: str) -> None:
        """`driver`: what the session's program is called."""
        self._home = home
        self._mark = mark
        self._driver = driver
        self.history = History()
        self._neighbors: dict[Channel, Neighbor] = {}  # those that opened a channel
        home.logs.history = self.history.add
        home.on_over = self._over

    def accept(self, channel: Channel) -> Desk:
        """Somebody with the key has opened a channel."""
        return self

    # -- the channels' listener --------------------------------------------

    def handle(self, channel: Channel, data: bytes) -> None:
        """A message of a command's, or of another session of the namespace."""
        if channel in self._neighbors:
            self._neighbors[channel].handle(channel, data)
            return
        try:
            message = TO_DESK.decode(data)
            if not isinstance(message, AskNames):
                self.act_on(channel, message)
            elif self._home.namespace is None:
                raise Refused("this session has no namespace")
            else:
                found = self._home.namespace.accept(channel, message)
                self._neighbors[channel] = found
        except (Refused, ValueError) as error:
            why = f"a malformed message: {error!s:.200}"
            channel.close(why)
            self.channel_closed(channel, why)

    def channel_closed(self, channel: Channel, why: str) -> None:
        self.history.forget(channel)
        if (neighbor := self._neighbors.pop(channel, None)) is not None:
            neighbor.channel_closed(channel, why)

    # -- commands ------------------------------------------------------------

    def act_on(self, channel: Channel, message: Message) -> None:
        """One request of a command's."""
        if isinstance(message, Status):
            self._home.surveys.begin(
                _PATIENCE_S, lambda rows: self._tell(channel, rows)
            )
        elif isinstance(message, Logs):
            self._show(channel, message)
        elif isinstance(message, Stop):
            self._home.tell_driver(Ended("mooactor stop"))
            self._home.lifetimes.shut_down(GRACE_S)

    def _tell(self, channel: Channel, rows: list[StatusRow]) -> None:
        channel.post(SessionStatus(self._mark, self._driver, rows))

    def _show(self, channel: Channel, message: Logs) -> None:
        name = message.name
        reader = self.history.read(name, channel)
        actor = self._last(name)
        if not message.follow or actor is None:
            reader.end(found=reader.has_some or actor is not None)
        elif actor.over:
            why = in_words(actor.last_notice().record)
            reader.end(True, actor.label, why)
        else:
            reader.follows = True

    def _last(self, name: str) -> Supervised | None:
        """The actor that is meant: one that is not over, else the latest."""
        for actors in (self._home.living, self._home.actors):
            for actor in reversed(actors.values()):
                if is_meant(actor.label, name):
                    return actor
        return None

    def close(self) -> None:
        """The session is over."""
        self.history.close(in_words(self._home.lifetimes.of_session()))

    def _over(self, actor: Supervised, record: ExitRecord) -> None:
        if self.history.followed:
            rest = [other.label for other in self._home.living.values()]
            self.history.end(actor.label, in_words(record), rest)
