# SPDX-License-Identifier: MIT
"""One other session of this one's namespace, as this home sees it.

Requests of processes of this session for actors of the other one go to its home, over
one channel, and what its home says to them comes back. The other direction has a
channel of its own; `visitors` is the side that answers, and `protocol` has the
messages.

Invariants:

* Nothing is asked before `AllNamed`: the answerer says it once it has this session for
  a neighbor, too. So its processes know whom they answer.
* A process that waits for something over this channel hears of its end: by the answer,
  or by the news that the other session is lost.

* Once the other session is lost, `Asker.last_words` has an end for all that a process
  awaits of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mooactor.control.channel import Channel
from mooactor.control.keys import actor_of
from mooactor.control.messages import Message, encode
from mooactor.host.addresses import is_reachable
from mooactor.host.eventloop import EventLoop, Line
from mooactor.host.protocol import (
    TO_ASKER,
    AllNamed,
    Answer,
    Ask,
    AskNames,
    Freed,
    LineClosed,
    Named,
    Over,
    Poll,
    Said,
)
from mooactor.process.exits import ExitRecord
from mooactor.process.protocol import (
    NEWS_OF_OTHERS,
    Died,
    Event,
    GetHandle,
    Gone,
    Locate,
    Located,
    Monitor,
    Reply,
    Request,
    Served,
    Unmonitor,
    Watch,
    death_notice,
)

if TYPE_CHECKING:
    from mooactor.host.neighbors import Neighbors


class Neighbor:
    """The listener of the channel to its home.

    ``id`` is that of its home's node, in hex. ``awaited`` says whether this session
    still waits for its names, to begin.
    """

    def __init__(
        self, all_of_them: Neighbors, loop: EventLoop, node_id: str, host: str
    ) -> None:
        self.id = node_id
        self.awaited = True
        self._all = all_of_them
        self._loop = loop
        self._host = host
        self._channel: Channel | None = None
        self._told = False  # all names that it had at the beginning
        self._end: ExitRecord | None = None  # of its actors, once it has said so
        self._held: list[Poll] = []  # until then
        self._names: set[str] = set()
        self._labels: dict[int, str] = {}  # of its actors that are known here, by id
        self._askers: dict[Line, Asker] = {}
        self._lines: dict[int, Line] = {}
        self._numbers = 0

    def open(self, channel: Channel, host: str, namespace: str) -> None:
        """Ask for its names, from now on; `host` is this home's."""
        self._channel = channel
        self._post(AskNames(host, namespace))

    def _post(self, message: Message) -> None:
        if self._channel is not None:
            self._channel.post(message)

    def close(self, why: str) -> None:
        """This session is over."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close(why)

    # -- questions of this home ----------------------------------------------

    def poll(self, question: Poll) -> None:
        """Have it answer, once it has told its names."""
        if self._told:
            self._post(question)
        else:
            self._held.append(question)

    def has(self, actor_id: int) -> None:
        """It has answered that this actor is its own."""
        self._labels.setdefault(actor_id, SOME_ACTOR)
        if len(self._labels) > MOST:
            del self._labels[next(iter(self._labels))]

    # -- requests of processes of this session -------------------------------

    def request(self, line: Line, request: Served) -> None:
        """Hand on a request of the process at the end of `line`."""
        asker = self._askers.get(line)
        if asker is None:
            self._numbers += 1
            asker = self._askers[line] = Asker(self._numbers)
            self._lines[asker.number] = line
        asker.note(request, self._labels.get(actor_of(request.id), SOME_ACTOR))
        process_id = self._all.process_of(line) or 0
        self._post(Ask(asker.number, process_id, encode(request)))

    def line_closed(self, line: Line) -> None:
        """A process of this session is gone."""
        asker = self._askers.pop(line, None)
        if asker is not None:
            del self._lines[asker.number]
            self._post(LineClosed(asker.number))

    # -- the channel's listener ----------------------------------------------

    def handle(self, channel: Channel, data: bytes) -> None:
        """A message of the other home's, which has the cluster's key."""
        if channel.peer.hex() != self.id:
            self._give_up(channel, f"another node listens at {channel.address}")
            return
        try:
            self._act_on(TO_ASKER.decode(data))
        except ValueError as error:
            self._give_up(channel, f"it sent a malformed message: {error!s:.200}")

    def _give_up(self, channel: Channel, why: str) -> None:
        channel.close(why)
        self.channel_closed(channel, why)

    def _act_on(self, message: Message) -> None:
        """Raises ValueError: it is malformed."""
        if isinstance(message, Said):
            line = self._lines.get(message.line)
            said = NEWS_OF_OTHERS.decode(message.message)
            if line is not None and (news := self._askers[line].heard(said)):
                self._loop.post(line, news)
        elif isinstance(message, Named):
            self._named(message)
        elif isinstance(message, Freed):
            self._names.discard(message.name)
            self._all.names.drop_elsewhere(self, message.name)
        elif isinstance(message, Answer):
            self._all.polls.answered(self, message.number, message.value)
        elif isinstance(message, Over):
            self._end = ExitRecord("owner", note=message.program, ended=True)
        elif isinstance(message, AllNamed):
            self._names_told()

    def _named(self, message: Named) -> None:
        name, actor_id, label = message.name, message.id, message.label[:1000]
        self._names.add(name)
        if len(self._names) > MOST:
            raise ValueError(f"it has told more than {MOST} names")
        self._labels.pop(actor_id, None)
        self.has(actor_id)
        self._labels[actor_id] = label
        whose = f"{label} of another session"
        self._all.names.put_elsewhere(self, name, whose, message.handle)

    def _names_told(self) -> None:
        self._told, self.awaited = True, False
        held, self._held = self._held, []
        for question in held:
            self.poll(question)
        self._all.look()

    def channel_closed(self, channel: Channel, why: str) -> None:
        """That session has ended, or cannot be reached."""
        if self._channel is None:
            return
        self._channel, self.awaited = None, False
        note = f"{self._host}: the session that it belongs to is lost: {why}"
        record = self._end or ExitRecord("host", note=note)
        with self._loop.together():
            for line, asker in self._askers.items():
                for one in asker.mourned():
                    self._all.presumed.add(line, one)
                for message in asker.last_words(record):
                    self._loop.post(line, message)
        self._askers.clear()
        self._lines.clear()
        self._all.lost(self, self._labels, record, why)


MOST = 1 << 14  # actors of other sessions that are kept; the oldest go
SOME_ACTOR = "an actor of another session"  # instead of a label


@dataclass(eq=False)
class Asker:
    """One process. ``number`` names it at the other session's home."""

    number: int
    _watched: dict[int, int] = field(default_factory=dict)  # incarnations, by actor
    _sought: set[int] = field(default_factory=set)  # processes that it looks for
    _asked: dict[int, type[Request]] = field(default_factory=dict)  # by rid
    # By number of a monitor: the label and the incarnation of its last event.
    _monitors: dict[int, tuple[str, int]] = field(default_factory=dict)

    def note(self, request: Request, label: str = SOME_ACTOR) -> None:
        """It asks for something of the actor of that label."""
        if isinstance(request, Watch):
            incarnation = request.incarnation & 0xFFFF
            self._watched.setdefault(actor_of(request.id), incarnation)
        elif isinstance(request, Locate):
            self._sought.add(request.id)
        elif isinstance(request, Monitor):
            self._monitors[request.monitor] = (label, 0)
        elif isinstance(request, Unmonitor):
            self._monitors.pop(request.monitor, None)
        if request.rid is not None:
            self._asked[request.rid] = type(request)

    def heard(self, message: Message) -> Message | None:
        """The other session's home tells it something: what it may hear of that, or
        None if it awaits no such thing. A process believes its own agent, so what only
        that can say is left out.

        Raises:
          ValueError: it makes no sense.
        """
        if isinstance(message, Reply):
            if not isinstance(message.value, None | bool | bytes):
                raise ValueError("the value answers no request of a process")
            awaited = self._asked.pop(message.rid, None) is not None
            return _if(awaited, Reply(message.rid, message.value, message.failed))
        if isinstance(message, Located | Gone):
            if isinstance(message, Located):
                message = replace(message, same=False, caller=False)
                if not is_reachable(message.address):
                    raise ValueError(f"address={message.address!r:.80} is none")
            awaited = message.id in self._sought
            self._sought.discard(message.id)
            return _if(awaited, message)
        if isinstance(message, Died):
            awaited = self._heard_of_death(message.id, message.following)
            return _if(awaited, message)
        assert isinstance(message, Event)
        return _if(self._heard_event(message), message)

    def _heard_of_death(self, actor_id: int, following: int | None) -> bool:
        watched = actor_id in self._watched
        if watched and following is not None:
            self._watched[actor_id] = following
        else:
            self._watched.pop(actor_id, None)
        return watched

    def _heard_event(self, event: Event) -> bool:
        watched = event.monitor in self._monitors
        if watched and not event.last:
            self._monitors[event.monitor] = (event.actor, event.incarnation)
        else:
            self._monitors.pop(event.monitor, None)
        return watched

    def mourned(self) -> list[int]:
        """The processes and actors that `last_words` calls dead."""
        return [*self._watched, *self._sought]

    def last_words(self, record: ExitRecord) -> list[Message]:
        """The ends of all that it awaits."""
        found: list[Message] = [
            death_notice(actor_id + incarnation, record)
            for actor_id, incarnation in self._watched.items()
        ]
        found += [Gone(one) for one in self._sought]
        found += [
            Reply(rid, None if kind is GetHandle else True)
            for rid, kind in self._asked.items()
        ]
        found += [
            Event("died", label, incarnation, record, True, monitor)
            for monitor, (label, incarnation) in self._monitors.items()
        ]
        return found


def _if(awaited: bool, message: Message) -> Message | None:
    return message if awaited else None
