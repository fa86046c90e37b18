# SPDX-License-Identifier: MIT
"""Answers of a session's home to commands: ``mooactor status``, ``logs`` and ``stop``.

They come over channels, from somebody who has the cluster's key; `protocol` has the
messages. Homes of other sessions of the namespace come here, too: see `namespaces`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mooactor.control.channel import Channel
from mooactor.control.messages import Message
from mooactor.host.history import History, is_meant
from mooactor.host.members import Stop
from mooactor.host.protocol import (
    TO_DESK,
    AskNames,
    Logs,
    Refused,
    SessionStatus,
    Status,
    StatusRow,
)
from mooactor.process.exits import ExitRecord, in_words
from mooactor.times import GRACE_S

if TYPE_CHECKING:
    from mooactor.host.home import Home
    from mooactor.host.namespaces import Neighbor
    from mooactor.host.supervised import Supervised

_PATIENCE_S = 1.0  # for processes that are busy


class Desk:
    """One for each home that has joined a cluster."""

    def __init__(self, home: Home, mark: str, driver: str) -> None:
        """`driver`: what the session's program is called."""
        self._home = home
        self._mark = mark
        self._driver = driver
        self.history = History()
        home.logs.history = self.history.add
        home.on_over = self._over

    def accept(self, channel: Channel) -> Visit:
        """Somebody with the key has opened a channel."""
        return Visit(self)

    def meet(self, channel: Channel, message: AskNames) -> Neighbor:
        """Raises Refused: there is no such namespace here."""
        if self._home.namespace is None:
            raise Refused("this session has no namespace")
        return self._home.namespace.accept(channel, message)

    def act_on(self, channel: Channel, message: Message) -> None:
        """One request of a command's."""
        if isinstance(message, Status):
            self._home.surveys.begin(
                _PATIENCE_S, lambda rows: self._tell(channel, rows)
            )
        elif isinstance(message, Logs):
            self._show(channel, message)
        elif isinstance(message, Stop):
            self._home.end(GRACE_S)

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


class Visit:
    """The listener of one such channel."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._neighbor: Neighbor | None = None  # if another session has opened it

    def handle(self, channel: Channel, data: bytes) -> None:
        if self._neighbor is not None:
            self._neighbor.handle(channel, data)
            return
        try:
            message = TO_DESK.decode(data)
            if isinstance(message, AskNames):
                self._neighbor = self._desk.meet(channel, message)
            else:
                self._desk.act_on(channel, message)
        except (Refused, ValueError) as error:
            why = f"a malformed message: {error!s:.200}"
            channel.close(why)
            self.channel_closed(channel, why)

    def channel_closed(self, channel: Channel, why: str) -> None:
        self._desk.history.forget(channel)
        if self._neighbor is not None:
            self._neighbor.channel_closed(channel, why)
