# SPDX-License-Identifier: MIT
"""The other sessions of a namespace: `moo.init(…, namespace="x")`.

Sessions of one cluster and one namespace share the names of their actors. They have one
key for their processes, derived from the cluster's key and the namespace, so a process
of one session calls an actor of another one as if it were of its own. All else stays
with each session: its home, its hosts, its lifetime.

The homes find each other in the broker's list of members, and are neighbors over one
channel; `protocol` has the messages. Invariants:

* A session begins (`moo.init` returns) when every session that the broker knew before
  has told its names, is lost, or has said nothing for `_SETTLED_S`.
* A name has at most one actor among sessions that can reach each other. It is *claimed*
  before it is given: every other home is asked. Of two claims at the same time that of
  the lower node id wins: who grants a claim gives up its own.
* A request for an actor that this session does not have goes to the session that has
  it. Which one that is, all are asked once. A process of theirs is a line like any
  other here: it watches, kills and looks for actors by the same requests as a process
  of this session. It spawns nothing, and nothing belongs to it.
* Nothing is asked before `AllNamed`: a home says it when it has this one for a
  neighbor, too. Of two channels that they open to each other at once that of the lower
  node id stays.
* A process that waits for something over the channel hears of its end: by the answer,
  or by the news that the other session is lost; see `Asker.last_words`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from mooactor.control.channel import Channel
from mooactor.control.keys import actor_of
from mooactor.control.messages import Message, encode, readable
from mooactor.control.node import Node
from mooactor.host.eventloop import FarLine, Line
from mooactor.host.lifetimes import Supervised
from mooactor.host.members import Row
from mooactor.host.membership import Membership
from mooactor.host.names import STARTING
from mooactor.host.protocol import (
    TO_NEIGHBOR,
    AllNamed,
    Answer,
    Ask,
    AskNames,
    Freed,
    LineClosed,
    Named,
    Over,
    Poll,
    Refused,
    Said,
)
from mooactor.process.exits import ExitRecord
from mooactor.process.protocol import (
    NEWS_OF_OTHERS,
    SERVED_REQUESTS,
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
    from mooactor.host.home import Home


_SETTLED_S = 5.0  # a session whose home is stopped is not waited for any longer
_OVER = "it has ended"  # to the other sessions
_OTHER_CHANNEL = "this session opens a channel itself"
_AGAIN_S = 1.0  # after a lost channel, if the broker still knows that session
# An actor that nobody knows may be one whose spawn is still unread on a line.
_UNREAD_S = 0.02
_MOST = 1 << 14  # names of one session
_MOST_LINES = 1 << 14  # more than one session can have processes


class Namespace:
    """The other sessions, for as long as this one's home is in the cluster."""

    def __init__(self, name: str, home: Home, node: Node) -> None:
        self.name = name
        self.home = home
        self.host = home.sites.here.host
        self.membership: Membership | None = None  # set once it is there
        self._node = node
        self._loop = home.loop
        self._neighbors: dict[str, Neighbor] = {}  # by node id
        self._known: dict[int, Neighbor] = {}  # by actor of theirs
        self._seeking: dict[int, list[Callable[[Neighbor | None], None]]] = {}
        self._claims: dict[str, str] = {}  # by name: who has won it against us
        self.polls = Polls()
        self._begun = self._closed = False
        self._when_settled: list[Callable[[], None]] = []

    # -- who they are ----------------------------------------------------------

    def on_row(self, row: Row) -> None:
        """A member of the cluster is new, or has changed."""
        if row.id == self._node.id.hex() and not self._begun:
            self._begin()  # a broker tells it after its list
        known = row.id == self._node.id.hex() or row.id in self._neighbors
        if row.kind != "home" or row.namespace != self.name or known or self._closed:
            return
        neighbor = Neighbor(self, row.id, row.name)
        with contextlib.suppress(ValueError):  # nobody can be reached there
            neighbor.attach(self._node.connect(row.address, neighbor))
            self._neighbors[row.id] = neighbor

    def accept(self, channel: Channel, message: AskNames) -> Neighbor:
        """Another home has opened a channel. It has proved the cluster's key, and said
        in the opening which node it is.

        Raises:
          Refused: it is none of this namespace's, or this session has a channel to it.
        """
        if message.namespace != self.name:
            raise Refused(f"this session has the namespace {self.name!r:.80}")
        if self._closed or channel.peer == self._node.id:
            raise Refused("this session has ended, or is the asker's own")
        neighbor = self._neighbors.get(channel.peer.hex())
        if neighbor and neighbor.has_channel and self._node.id < channel.peer:
            raise Refused(_OTHER_CHANNEL)
        if neighbor and neighbor.told:
            neighbor.lose("it has opened another channel")
            neighbor = None
        if neighbor is None:
            neighbor = Neighbor(self, channel.peer.hex(), message.host)
            self._neighbors[neighbor.id] = neighbor
        neighbor.attach(channel)
        neighbor.act_on(message)
        return neighbor

    # -- the beginning -----------------------------------------------------------

    def _begin(self) -> None:
        self._begun = True
        self._loop.later(_SETTLED_S, self._settle)
        self.look()

    def _settle(self) -> None:
        for neighbor in self._neighbors.values():
            neighbor.awaited = False
        self.look()

    def when_settled(self, action: Callable[[], None]) -> None:
        """Call `action` once the names of all sessions are known."""
        self._when_settled.append(action)
        self.look()

    def look(self) -> None:
        """One has told its names, or is lost."""
        if self._begun and not any(one.awaited for one in self._neighbors.values()):
            actions, self._when_settled = self._when_settled, []
            for action in actions:
                action()

    # -- the end of one ------------------------------------------------------------

    def lost(self, neighbor: Neighbor) -> None:
        """Its channel has ended."""
        if self._neighbors.get(neighbor.id) is neighbor:
            del self._neighbors[neighbor.id]
        self._known = {k: n for k, n in self._known.items() if n is not neighbor}
        self.home.names.drop_all_elsewhere(neighbor)
        self.polls.lost(neighbor)
        self._loop.later(_AGAIN_S, self._find_again)
        self.look()

    def _find_again(self) -> None:
        """A partition that has healed leaves the broker's list as it was."""
        if self.membership is not None and not self._closed:
            for row in self.membership.members():
                self.on_row(row)

    def close(self) -> None:
        """This session is over."""
        self._closed = True
        for neighbor in self._neighbors.values():
            neighbor.close()
        self._neighbors.clear()

    # -- actors of theirs ----------------------------------------------------------

    def take(
        self,
        line: Line,
        request: Served,
        otherwise: Callable[[], None],
        guard: Callable[[Callable[[], None]], None],
    ) -> None:
        """A request for an actor that is not of this session: hand it on to the session
        that has it, or do `otherwise`. Later steps go through `guard`, so that an error
        in them is that request's alone."""

        def act(neighbor: Neighbor | None) -> None:
            if not self._loop.is_open(line):
                return
            if neighbor is not None:
                neighbor.request(line, request)
            else:
                otherwise()

        def found(neighbor: Neighbor | None) -> None:
            guard(partial(act, neighbor))

        self._find(actor_of(request.id), found)

    def _find(self, actor_id: int, found: Callable[[Neighbor | None], None]) -> None:
        neighbor = self._known.get(actor_id)
        if neighbor is not None:
            found(neighbor)
            return
        waiting = self._seeking.setdefault(actor_id, [])
        waiting.append(found)
        if len(waiting) > 1:
            return

        def end(neighbor: Neighbor | None, value: Any) -> None:
            if neighbor is not None:
                self._known[actor_id] = neighbor
            for action in self._seeking.pop(actor_id):
                action(neighbor)

        self.polls.ask(self._neighbors.values(), end, actor_id=actor_id)

    def line_closed(self, line: Line) -> None:
        """A process of this session is gone."""
        for neighbor in self._neighbors.values():
            neighbor.line_closed(line)

    # -- names -------------------------------------------------------------------

    def claim(self, name: str, done: Callable[[str | None], None]) -> None:
        """Have a name for this session; `done` hears who has it, None: it is ours to
        give, at once."""
        if name in self._claims:
            done("an actor that is being started")
            return
        self._claims[name] = ""

        def end(neighbor: Neighbor | None, label: Any) -> None:
            winner = self._claims.pop(name)
            done(str(label) if label else winner or self.home.names.taken_by(name))

        self.polls.ask(self._neighbors.values(), end, name=name)

    def has_claimed(self, name: str, asker: str) -> bool:
        """Whether our own claim to a name stands against that of another node. If it
        does not, it is given up."""
        if name not in self._claims or self._claims[name]:
            return False
        if self._node.id.hex() < asker:
            return True
        self._claims[name] = STARTING
        return False


#: Hears who has answered with a value that is not None, and that value; None and None
#: if nobody has.
Done = Callable[["Neighbor | None", Any], None]


@dataclass
class _Poll:
    done: Done
    open: set[Neighbor]  # those that have not answered


class Polls:
    """Those that are not over. One is over when all have answered, or one has with a
    value that is not None. A neighbor that is lost knows nothing."""

    def __init__(self) -> None:
        self._polls: dict[int, _Poll] = {}
        self._numbers = 0

    def ask(
        self,
        neighbors: Iterable[Neighbor],
        done: Done,
        *,
        name: str | None = None,
        actor_id: int | None = None,
    ) -> None:
        """Who has that name, or that actor?"""
        self._numbers += 1
        number = self._numbers
        poll = self._polls[number] = _Poll(done, set(neighbors))
        for neighbor in list(poll.open):
            neighbor.poll(Poll(number, name, actor_id))
        self._end_if_over(number)

    def answered(self, neighbor: Neighbor, number: int, value: Any) -> None:
        """One has answered a question; None: it knows nothing of that."""
        poll = self._polls.get(number)
        if poll is None or neighbor not in poll.open:
            return
        poll.open.discard(neighbor)
        if value is not None:
            del self._polls[number]
            poll.done(neighbor, value)
        else:
            self._end_if_over(number)

    def lost(self, neighbor: Neighbor) -> None:
        """It answers nothing any more."""
        for number in list(self._polls):
            self.answered(neighbor, number, None)

    def _end_if_over(self, number: int) -> None:
        poll = self._polls.get(number)
        if poll is not None and not poll.open:
            del self._polls[number]
            poll.done(None, None)


class ServedLine(FarLine):
    """To a process of another session."""

    def __init__(self, channel: Channel, number: int) -> None:
        super().__init__(number)
        self._channel = channel

    def hand_on(self, message: Message, fds: Sequence[int]) -> None:
        self._channel.post(Said(self.number, encode(message)))


class Neighbor:
    """One other session; the listener of the channel to its home.

    ``id`` is that of its home's node, in hex. ``awaited`` says whether this session
    still waits for its names, to begin, and ``told`` whether it has told them.
    """

    def __init__(self, namespace: Namespace, node_id: str, host: str) -> None:
        self.id = node_id
        self.awaited, self.told = True, False
        self._all, self._home = namespace, namespace.home
        self._loop = namespace.home.loop
        self._host = host
        self._channel: Channel | None = None
        self._end: ExitRecord | None = None  # of its actors, once it has said so
        self._held: list[Poll] = []  # until it has told its names
        self._names: set[str] = set()
        self._askers: dict[Line, Asker] = {}
        self._lines: dict[int, Line] = {}
        self._numbers = 0
        self._follows = False  # it hears our names
        self._served: dict[int, ServedLine] = {}  # to its processes that ask here

    @property
    def has_channel(self) -> bool:
        return self._channel is not None

    def attach(self, channel: Channel) -> None:
        """Ask for its names over this channel, which takes the place of another one."""
        before, self._channel = self._channel, channel
        if before is not None:
            before.close(_OTHER_CHANNEL)
        channel.post(AskNames(self._all.host, self._all.name))

    def _post(self, message: Message) -> None:
        if self._channel is not None:
            self._channel.post(message)

    def close(self) -> None:
        """This session is over: say so, for those who ask there for its actors."""
        channel, self._channel = self._channel, None
        if channel is not None:
            if self._home.ending:
                channel.post(Over(readable(self._home.program)))
            channel.close(_OVER)
        self._serve_no_more()

    # -- the channel's listener ----------------------------------------------

    def handle(self, channel: Channel, data: bytes) -> None:
        """A message of the other home's, which has the cluster's key."""
        if channel is not self._channel:
            return
        if channel.peer.hex() != self.id:
            self._give_up(channel, f"another node listens at {channel.address}")
            return
        try:
            self.act_on(TO_NEIGHBOR.decode(data))
        except (Refused, ValueError) as error:
            self._give_up(channel, f"a malformed message: {error!s:.200}")

    def _give_up(self, channel: Channel, why: str) -> None:
        channel.close(why)
        self.channel_closed(channel, why)

    def channel_closed(self, channel: Channel, why: str) -> None:
        """That session has ended, or cannot be reached."""
        if channel is not self._channel:
            return
        if _OTHER_CHANNEL not in why:
            self.lose(why)
            return
        self._channel = None  # its own comes, or has been lost on the way

        def look() -> None:
            if self._channel is None:
                self.lose(why)

        self._loop.later(_SETTLED_S, look)

    def act_on(self, message: Message) -> None:
        """Raises Refused, ValueError: it is malformed, or cannot be now."""
        if isinstance(message, AskNames):
            self._follow()
        elif isinstance(message, Poll | Ask | LineClosed):
            if not self._follows:
                raise Refused("it asks for something before it asks for names")
            self._serve(message)
        elif isinstance(message, Said):
            line = self._lines.get(message.line)
            said = NEWS_OF_OTHERS.decode(message.message)
            if line is not None:
                self._askers[line].hears(said)
                self._loop.post(line, said)
        elif isinstance(message, Named):
            self._named(message)
        elif isinstance(message, Freed):
            self._names.discard(message.name)
            self._home.names.drop_elsewhere(self, message.name)
        elif isinstance(message, Answer):
            self._all.polls.answered(self, message.number, message.value)
        elif isinstance(message, Over):
            self._end = ExitRecord("owner", note=message.program, ended=True)
        elif isinstance(message, AllNamed):
            self._names_told()

    def lose(self, why: str) -> None:
        """It is lost: say so to all that wait for something of it."""
        self._channel, self.awaited = None, False
        note = f"{self._host}: the session that it belongs to is lost: {why}"
        record = self._end or ExitRecord("host", note=note)
        with self._loop.together():
            for line, asker in self._askers.items():
                for message in asker.last_words(record):
                    self._loop.post(line, message)
        self._askers.clear()
        self._lines.clear()
        self._serve_no_more()
        self._all.lost(self)

    # -- what this session asks there ----------------------------------------

    def poll(self, question: Poll) -> None:
        """Have it answer, once it has told its names."""
        if self.told:
            self._post(question)
        else:
            self._held.append(question)

    def request(self, line: Line, request: Served) -> None:
        """Hand on a request of the process at the end of `line`."""
        asker = self._askers.get(line)
        if asker is None:
            self._numbers += 1
            asker = self._askers[line] = Asker(self._numbers)
            self._lines[asker.number] = line
        asker.note(request)
        self._post(Ask(asker.number, encode(request)))

    def line_closed(self, line: Line) -> None:
        """A process of this session is gone."""
        asker = self._askers.pop(line, None)
        if asker is not None:
            del self._lines[asker.number]
            self._post(LineClosed(asker.number))

    def _named(self, message: Named) -> None:
        self._names.add(message.name)
        if len(self._names) > _MOST:
            raise ValueError(f"it has told more than {_MOST} names")
        whose = f"{message.label[:1000]} of another session"
        self._home.names.put_elsewhere(self, message.name, whose, message.handle)

    def _names_told(self) -> None:
        self.told, self.awaited = True, False
        held, self._held = self._held, []
        for question in held:
            self.poll(question)
        self._all.look()

    # -- what it asks here -----------------------------------------------------

    def _follow(self) -> None:
        """Tell all names, and those to come."""
        names = self._home.names
        if not self._follows:
            self._follows = True
            names.followers.append(self._tell)
        for name, actor in names.given():
            self._tell(name, actor)
        self._post(AllNamed())

    def _tell(self, name: str, actor: Supervised | None) -> None:
        """An actor has got a name, or nobody has it any more."""
        if actor is None:
            self._post(Freed(name))
        else:
            self._post(Named(name, actor.label, actor.handle))

    def _serve(self, message: Poll | Ask | LineClosed) -> None:
        if isinstance(message, Ask):
            self._serve_process(message)
        elif isinstance(message, LineClosed):
            self._close_line(message.line)
        elif message.name is not None:
            self._post(Answer(message.number, self._holder(message.name)))
        else:
            self._answer_owner(message.number, message.id or 0, tries=1)

    def _answer_owner(self, question: int, actor_id: int, tries: int) -> None:
        has = self._has(actor_id)
        if has or not tries:
            self._post(Answer(question, has or None))
            return
        again = partial(self._answer_owner, question, actor_id, tries - 1)
        self._loop.later(_UNREAD_S, again)

    def _holder(self, name: str) -> str | None:
        actor = self._home.names.holder(name)
        if actor is not None:
            return f"{actor.label} of another session"
        return STARTING if self._all.has_claimed(name, self.id) else None

    def _has(self, actor_id: int) -> bool:
        home = self._home
        assert home.config is not None
        is_driver = actor_id == actor_of(home.config.process_id)
        return is_driver or actor_id in home.actors

    def _serve_process(self, message: Ask) -> None:
        request, number = SERVED_REQUESTS.decode(message.message), message.line
        line, channel = self._served.get(number), self._channel
        if channel is None:
            return
        if line is None:
            if len(self._served) >= _MOST_LINES:
                raise Refused(f"no session has more than {_MOST_LINES} processes")
            line = self._served[number] = ServedLine(channel, number)
            self._loop.watch_line(line, self._home)
        self._home.requests.serve(line, request)

    def _close_line(self, number: int) -> None:
        line = self._served.pop(number, None)
        if line is not None:
            self._loop.close_line(line)

    def _serve_no_more(self) -> None:
        for number in list(self._served):
            self._close_line(number)
        if self._follows:
            self._follows = False
            self._home.names.followers.remove(self._tell)


@dataclass(eq=False)
class Asker:
    """One process. ``number`` names it at the other session's home."""

    number: int
    _watched: dict[int, int] = field(default_factory=dict)  # incarnations, by actor
    _sought: set[int] = field(default_factory=set)  # processes that it looks for
    _asked: dict[int, type[Request]] = field(default_factory=dict)  # by rid
    # By number of a monitor: the label and the incarnation of its last event.
    _monitors: dict[int, tuple[str, int]] = field(default_factory=dict)

    def note(self, request: Request) -> None:
        """It asks for something of an actor."""
        if isinstance(request, Watch):
            incarnation = request.incarnation & 0xFFFF
            self._watched.setdefault(actor_of(request.id), incarnation)
        elif isinstance(request, Locate):
            self._sought.add(request.id)
        elif isinstance(request, Monitor):
            self._monitors[request.monitor] = ("an actor of another session", 0)
        elif isinstance(request, Unmonitor):
            self._monitors.pop(request.monitor, None)
        if request.rid is not None:
            self._asked[request.rid] = type(request)

    def hears(self, message: Message) -> None:
        """The other session's home answers it, or tells it some news."""
        if isinstance(message, Reply):
            self._asked.pop(message.rid, None)
        elif isinstance(message, Located | Gone):
            self._sought.discard(message.id)
        elif isinstance(message, Died) and message.id in self._watched:
            del self._watched[message.id]
            if message.following is not None:
                self._watched[message.id] = message.following
        elif isinstance(message, Event) and message.monitor in self._monitors:
            del self._monitors[message.monitor]
            if not message.last:
                last = (message.actor, message.incarnation)
                self._monitors[message.monitor] = last

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
