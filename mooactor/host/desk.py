# SPDX-License-Identifier: MIT
"""Answers of a session's home to commands: ``mooactor status``, ``logs`` and ``stop``.

They come over channels, from somebody who has the cluster's key:

==========  ============  ==========================================================
op          fields        answer
==========  ============  ==========================================================
``status``                ``{"ev": "status", "session", "driver", "actors"}``
``logs``    name, follow  ``{"ev": "meant", "actors"}``: the ids of two of the actors of
                          this name, or of as many as there are. Then ``{"ev": "log",
                          "line", "stream"}`` and the fields of `Printer` for each
                          line, with ``host`` if that is another one than the home's,
                          then ``{"ev": "end", "found"}``. With `follow` that comes once
                          no actor of this name will run again, with the ``label``
                          of the last one and ``why`` it ended. ``{"ev":
                          "left_out", "lines"}`` stands for so many lines that a slow
                          reader does not get
``stop``                  none: the session ends, and the channel with it
==========  ============  ==========================================================

Homes of other sessions of the namespace come here, too: see `visitors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mooactor.control.channel import Channel
from mooactor.control.lifeline import Message
from mooactor.host import history
from mooactor.host.fields import MALFORMED
from mooactor.host.history import History, is_meant
from mooactor.host.printers import Printers
from mooactor.host.visitors import Visitor
from mooactor.process.exits import ExitRecord, in_words
from mooactor.times import GRACE_S

if TYPE_CHECKING:
    from mooactor.host.home import Home
    from mooactor.host.supervised import Supervised

_PATIENCE_S = 1.0  # for processes that are busy


class Desk:
    """One for each home that has joined a cluster."""

    def __init__(self, home: Home, mark: str, driver: str) -> None:
        """`driver`: what the session's program is called."""
        self._home = home
        self._mark = mark
        self._driver = driver
        self.history = History(home.loop.later)
        self._printers = Printers(home)
        home.logs.history = self._printed
        home.on_over = self._over

    def accept(self, channel: Channel) -> Visit:
        """Somebody with the key has opened a channel."""
        return Visit(self, Visitor(self._home, channel))

    def act_on(self, channel: Channel, message: Message) -> None:
        """One request of the table."""
        op = message.get("op")
        if op == "status":
            self._home.surveys.begin(
                _PATIENCE_S, lambda rows: self._tell(channel, rows)
            )
        elif op == "logs":
            self._show(channel, message)
        elif op == "stop":
            self._home.end(GRACE_S)
        else:
            channel.close(f"there is no request {op!r:.40}")

    def _tell(self, channel: Channel, rows: list[dict[str, Any]]) -> None:
        answer = {"ev": "status", "session": self._mark, "driver": self._driver}
        channel.post({**answer, "actors": rows})

    def _printed(
        self, number: int, label: str, pid: int, lines: list[bytes], host: str
    ) -> None:
        self.history.add(number, self._printers.of(label, pid, host), lines, host)

    def _show(self, channel: Channel, message: Message) -> None:
        name, follow = message.get("name"), message.get("follow")
        if type(name) is not str:
            channel.close("the name is no string")
            return
        actors = self.history.actors(name) | {
            f"{actor.id:016x}"
            for actor in self._home.living.values()
            if is_meant(actor.label, name)
        }
        channel.post({"ev": "meant", "actors": sorted(actors)[:2]})
        reader = self.history.read(name, channel)
        actor = self._last(name)
        if follow is not True or actor is None:
            reader.end(found=reader.waits or actor is not None)
        elif actor.over:
            record = ExitRecord.of_plain(actor.last_notice()["record"])
            history.end(reader, actor.label, in_words(record))
        else:
            reader.follows = True
        self.history.send()

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

    def __init__(self, desk: Desk, visitor: Visitor) -> None:
        """`visitor`: what it is if another session has opened the channel."""
        self._desk = desk
        self._visitor = visitor

    def handle(self, channel: Channel, message: Message) -> None:
        if str(message.get("op")) not in Visitor.OPS:
            self._desk.act_on(channel, message)
            return
        try:
            self._visitor.act_on(message)
        except MALFORMED as error:
            why = f"a malformed message: {error!r:.200}"
            channel.close(why)
            self.channel_closed(channel, why)

    def channel_closed(self, channel: Channel, why: str) -> None:
        self._desk.history.forget(channel)
        self._visitor.close()
