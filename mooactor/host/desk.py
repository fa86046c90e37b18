# SPDX-License-Identifier: MIT
"""Answers of a session's home to commands: ``mooactor status``, ``logs`` and ``stop``.

They come over channels, from somebody who has the cluster's key:

==========  ============  ==========================================================
op          fields        answer
==========  ============  ==========================================================
``status``                ``{"ev": "status", "session", "driver", "actors"}``
``logs``    name, follow  ``{"ev": "log", "line", "stream"}`` for each line, then
                          ``{"ev": "end", "found"}``. With `follow` that comes once
                          no actor of this name will run again, with the ``label``
                          of the last one and ``why`` it ended
``stop``                  none: the session ends, and the channel with it
==========  ============  ==========================================================

Homes of other sessions of the namespace come here, too: see `visitors`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from mooactor.control.channel import Channel
from mooactor.control.lifeline import Message
from mooactor.host.fields import MALFORMED
from mooactor.host.visitors import Visitor
from mooactor.process.exits import ExitRecord, in_words

if TYPE_CHECKING:
    from mooactor.host.home import Home
    from mooactor.host.supervised import Supervised

_MOST_LINES = 1000  # kept of one actor
_MOST_ACTORS = 1000  # of which lines are kept: those that printed last
_MOST_QUEUED = 1 << 22  # bytes for a reader that is slow; later lines are left out
_PATIENCE_S = 1.0  # for processes that are busy
_GRACE_S = 3.0
_WITH_SESSION = "its session has ended"


class History:
    """The last lines that each actor has printed, also of those that are dead."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[tuple[int, str]]] = {}
        self._followers: list[tuple[str, Channel]] = []

    def add(self, number: int, prefix: bytes, line: bytes) -> None:
        """An actor has printed a line on its stdout (1) or stderr (2)."""
        label = _label(prefix)
        kept = self._lines.pop(label, None) or deque(maxlen=_MOST_LINES)
        text = line.decode(errors="replace")
        kept.append((number, text))
        self._lines[label] = kept  # the last one, in the order of this dict
        if len(self._lines) > _MOST_ACTORS:
            del self._lines[next(iter(self._lines))]
        for followed, channel in self._followers:
            if _is(label, followed):
                _post_line(channel, number, text)

    def send(self, name: str, channel: Channel) -> bool:
        """Send the lines of the actor of this name; whether there were any."""
        found = [kept for label, kept in self._lines.items() if _is(label, name)]
        for number, text in [line for kept in found for line in kept]:
            _post_line(channel, number, text)
        return bool(found)

    def follow(self, name: str, channel: Channel) -> None:
        """Send those to come, too."""
        self._followers.append((name, channel))

    @property
    def followed(self) -> bool:
        """Whether somebody follows an actor."""
        return bool(self._followers)

    def forget(self, channel: Channel) -> None:
        """Nobody reads there any more."""
        self._followers = [one for one in self._followers if one[1] is not channel]

    def end(self, label: str, why: str, rest: Collection[str]) -> None:
        """An actor will not run again. Those who follow it hear of that, unless their
        name means one of the `rest`, the labels of those that are not over."""
        for follower in list(self._followers):
            name, channel = follower
            if _is(label, name) and not any(_is(other, name) for other in rest):
                self._followers.remove(follower)
                post_end(channel, label, why)

    def close(self) -> None:
        """The session is over."""
        for name, channel in self._followers:
            post_end(channel, name, _WITH_SESSION)
        self._followers.clear()


def post_end(channel: Channel, label: str, why: str) -> None:
    """The last message to one who follows an actor."""
    channel.post({"ev": "end", "found": True, "label": label, "why": why})


def _label(prefix: bytes) -> str:
    """Of ``(LABEL pid=1 host=b) ``."""
    text = prefix.decode(errors="replace")
    return text[1 : text.rindex(" pid=")] if " pid=" in text else text


def _is(label: str, name: str) -> bool:
    """Whether an actor is meant: by its name, or by its label."""
    return label == name or label.endswith(f":{name}")


def _post_line(channel: Channel, number: int, text: str) -> None:
    if channel.queued < _MOST_QUEUED:
        channel.post({"ev": "log", "line": text, "stream": number})


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
            self._home.end(_GRACE_S)
        else:
            channel.close(f"there is no request {op!r:.40}")

    def _tell(self, channel: Channel, rows: list[dict[str, Any]]) -> None:
        answer = {"ev": "status", "session": self._mark, "driver": self._driver}
        channel.post({**answer, "actors": rows})

    def _show(self, channel: Channel, message: Message) -> None:
        name, follow = message.get("name"), message.get("follow")
        if type(name) is not str:
            channel.close("the name is no string")
            return
        printed = self.history.send(name, channel)
        actor = self._last(name)
        if follow is not True or actor is None:
            channel.post({"ev": "end", "found": printed or actor is not None})
        elif actor.over:
            record = ExitRecord.of_plain(actor.last_notice()["record"])
            post_end(channel, actor.label, self._why(record))
        else:
            self.history.follow(name, channel)

    def _last(self, name: str) -> Supervised | None:
        """The actor that is meant: one that is not over, else the latest."""
        for actors in (self._home.living, self._home.actors):
            for actor in reversed(actors.values()):
                if _is(actor.label, name):
                    return actor
        return None

    def _over(self, actor: Supervised, record: ExitRecord) -> None:
        if self.history.followed:
            rest = [other.label for other in self._home.living.values()]
            self.history.end(actor.label, self._why(record), rest)

    def _why(self, record: ExitRecord) -> str:
        """How an actor ended, in words."""
        if record.kind == "stopped" and self._home.ending:
            return _WITH_SESSION
        return in_words(record)


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
