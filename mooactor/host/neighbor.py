# SPDX-License-Identifier: MIT
"""One other session of this one's namespace, as this home sees it.

Requests of processes of this session for actors of the other one go to its home, over
one channel, and what its home says to them comes back. The other direction has a
channel of its own; `visitors` is the side that answers:

==========  ========  ================================================================
message     from      fields
==========  ========  ================================================================
names       asker     nothing: tell the names of now, and each change
named       answerer  name, label, handle
freed       answerer  name
told        answerer  nothing: these were all names of now
poll        asker     number, and what the answer depends on: see `neighbors`
answer      answerer  number, value
request     asker     line (a number for each process), message
said        answerer  line, message
closed      asker     line: that process is gone
==========  ========  ================================================================

Invariant: whatever a process waits for over this channel, it hears of its end: by the
answer, or by the news that the other session is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mooactor.control.channel import Channel
from mooactor.control.keys import actor_of
from mooactor.control.lifeline import Message
from mooactor.host.eventloop import EventLoop, Line
from mooactor.host.fields import MALFORMED
from mooactor.host.rows import Row
from mooactor.host.supervised import death_notice
from mooactor.process.exits import ExitRecord

if TYPE_CHECKING:
    from mooactor.host.neighbors import Neighbors

_WITHOUT_HOME = {"monitor": False, "handle": None}  # replies; True to other requests


@dataclass(eq=False)
class _Asker:
    """A process of this session, and what it awaits of the other one."""

    number: int
    watched: dict[int, int] = field(default_factory=dict)  # incarnations, by actor
    sought: set[int] = field(default_factory=set)  # processes that it looks for
    asked: dict[int, str] = field(default_factory=dict)  # requests, by rid
    # The last event of each monitor, by its number.
    monitors: dict[int, Message] = field(default_factory=dict)


class Neighbor:
    """The listener of the channel to its home."""

    def __init__(self, all_of_them: Neighbors, loop: EventLoop, row: Row) -> None:
        self._all = all_of_them
        self._loop = loop
        self._host = row["name"]
        self._channel: Channel | None = None
        self._askers: dict[Line, _Asker] = {}
        self._lines: dict[int, Line] = {}
        self._numbers = 0
        self.told = False  # all names that it had at the beginning

    def open(self, channel: Channel) -> None:
        """Ask for its names, from now on."""
        self._channel = channel
        self.post("names")

    def post(self, what: str, **fields: Any) -> None:
        """Send one message of the table."""
        if self._channel is not None:
            self._channel.post({"op": what, **fields})

    def close(self) -> None:
        """This session is over."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    # -- requests of processes of this session -------------------------------

    def request(self, line: Line, message: Message) -> bool:
        """Hand on a request of the process at the end of `line`; False: it makes no
        sense."""
        asker = self._askers.get(line)
        if asker is None:
            self._numbers += 1
            asker = self._askers[line] = _Asker(self._numbers)
            self._lines[asker.number] = line
        try:
            _note(asker, message)
        except MALFORMED:
            return False
        self.post("request", line=asker.number, message=message)
        return True

    def line_closed(self, line: Line) -> None:
        """A process of this session is gone."""
        asker = self._askers.pop(line, None)
        if asker is not None:
            del self._lines[asker.number]
            self.post("closed", line=asker.number)

    # -- the channel's listener ----------------------------------------------

    def handle(self, channel: Channel, message: Message) -> None:
        """A message of the other home's, which has the cluster's key."""
        try:
            self._act_on(message)
        except MALFORMED as error:
            why = f"it sent a malformed message: {error!r:.200}"
            channel.close(why)
            self.channel_closed(channel, why)

    def _act_on(self, message: Message) -> None:
        what = message["ev"]
        if what == "said":
            line = self._lines.get(message["line"])
            if line is not None:
                _note_answer(self._askers[line], message["message"])
                self._loop.post(line, message["message"])
        elif what == "named":
            name, handle = message["name"], message["handle"]
            if type(name) is not str or type(handle) is not bytes:
                raise TypeError("a name is a string, and a handle has bytes")
            label = f"{message['label']!s:.1000} of another session"
            self._all.names.put_elsewhere(self, name, label, handle)
        elif what == "freed":
            self._all.names.drop_elsewhere(self, message["name"])
        elif what == "answer":
            self._all.answered(self, message["number"], message["value"])
        elif what == "told":
            self.told = True
            self._all.look()

    def channel_closed(self, channel: Channel, why: str) -> None:
        """That session has ended, or cannot be reached."""
        if self._channel is None:
            return
        self._channel = None
        note = f"{self._host}: the session that it belongs to is lost: {why}"
        record = ExitRecord("host", note=note)
        with self._loop.together():
            for line, asker in self._askers.items():
                for message in _last_words(asker, record):
                    self._loop.post(line, message)
        self._askers.clear()
        self._lines.clear()
        self._all.lost(self)


def _note(asker: _Asker, message: Message) -> None:
    """A process awaits something."""
    op, rid = message.get("op"), message.get("rid")
    if op == "watch":
        incarnation = message["incarnation"] & 0xFFFF
        asker.watched.setdefault(actor_of(message["id"]), incarnation)
    elif op == "locate":
        asker.sought.add(message["id"])
    elif op == "monitor":
        nothing_yet = {"actor": "an actor of another session", "incarnation": 0}
        asker.monitors[message["monitor"]] = nothing_yet
    elif op == "unmonitor":
        asker.monitors.pop(message["monitor"], None)
    if type(rid) is int:
        asker.asked[rid] = str(op)


def _note_answer(asker: _Asker, message: Message) -> None:
    """It hears something."""
    what = message["ev"]
    if what == "reply":
        asker.asked.pop(message["rid"], None)
    elif what == "located":
        asker.sought.discard(message["id"])
    elif what == "died" and message["following"] is None:
        asker.watched.pop(message["id"], None)
    elif what == "died" and message["id"] in asker.watched:
        asker.watched[message["id"]] = message["following"]
    elif what == "event" and message["monitor"] in asker.monitors:
        asker.monitors[message["monitor"]] = message
        if message["last"]:
            del asker.monitors[message["monitor"]]


def _last_words(asker: _Asker, record: ExitRecord) -> list[Message]:
    """What a process hears when the other session is lost."""
    found = [
        death_notice(actor_id + incarnation, record, None)
        for actor_id, incarnation in asker.watched.items()
    ]
    found += [{"ev": "located", "id": one, "gone": True} for one in asker.sought]
    found += [
        {"ev": "reply", "rid": rid, "value": _WITHOUT_HOME.get(op, True)}
        for rid, op in asker.asked.items()
    ]
    end = {"ev": "event", "what": "died", "record": record.plain(), "last": True}
    for monitor, event in asker.monitors.items():
        about = {key: event[key] for key in ("actor", "incarnation")}
        found.append({**end, **about, "monitor": monitor})
    return found
