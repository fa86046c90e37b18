# SPDX-License-Identifier: MIT
"""The other sessions of a namespace: `moo.init(…, namespace="x")`.

Sessions of one cluster and one namespace share the names of their actors. They have one
key for their processes, derived from the cluster's key and the namespace, so a process
of one session calls an actor of another one as if it were of its own. All else stays
with each session: its home, its hosts, its lifetime.

The homes find each other in the broker's list of members. Each has a channel to every
other one (`neighbor`), and answers those that have one to it (`visitors`). Invariants:

* A session begins (`moo.init` returns) when every session that the broker knew before
  has told its names, is lost, or has said nothing for `_SETTLED_S`.
* A name has at most one actor among sessions that can reach each other. It is *claimed*
  before it is given: every other home is asked. Of two claims at the same time that of
  the lower node id wins: who grants a claim gives up its own.
* A request for an actor that this session does not have goes to the session that has
  it. Which one that is, all are asked once.
* Two homes are neighbors of each other or not at all. One that asks this home becomes
  its neighbor at once, also if the broker's news of it is late; and when a neighbor is
  lost, its channels to this home are closed. So no process calls one that takes it for
  dead, and would not answer.

* A session that processes of this one take for dead stays dead to them: `Presumed`. A
  process sends such a one nothing any more, answers included. So if that session is
  found again, its processes must not call this one.
* The ends of lost actors of other sessions are told to later askers, too: `Departed`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from mooactor.control.keys import actor_of
from mooactor.control.messages import Message
from mooactor.control.node import Node
from mooactor.host.eventloop import EventLoop, Line
from mooactor.host.members import Row
from mooactor.host.membership import Membership
from mooactor.host.names import STARTING, Names
from mooactor.host.neighbor import MOST, Asker, Neighbor
from mooactor.host.protocol import Poll, Refused
from mooactor.process.exits import ExitRecord
from mooactor.process.protocol import Locate, Served, Watch

if TYPE_CHECKING:
    from mooactor.host.visitors import Visitor


_SETTLED_S = 5.0  # a session whose home is stopped is not waited for any longer
_OVER = "it has ended"  # to the other sessions
_AGAIN_S = 1.0  # after a lost channel, if the broker still knows that session


class Neighbors:
    """Those of one home, for as long as it is in the cluster."""

    def __init__(
        self,
        namespace: str,
        host: str,
        names: Names,
        node: Node,
        loop: EventLoop,
        process_of: Callable[[Line], int | None],
    ) -> None:
        """`host`: the name of the driver's. `process_of`: the id of the process at the
        end of a line."""
        self.namespace = namespace
        self._host = host
        self.names = names
        self.membership: Membership | None = None  # set once it is there
        self._node = node
        self._loop = loop
        self._neighbors: dict[str, Neighbor] = {}  # by node id
        self._visitors: dict[str, list[Visitor]] = {}  # by node id
        self._known: dict[int, Neighbor] = {}  # by actor of theirs
        self._departed, self.presumed = Departed(), Presumed()
        self.process_of = process_of
        self._seeking: dict[int, list[Callable[[Neighbor | None], None]]] = {}
        self._claims: dict[str, str] = {}  # by name: who has won it against us
        self.polls = Polls()
        self._begun = self._closed = False
        self._when_settled: list[Callable[[], None]] = []

    # -- who they are ----------------------------------------------------------

    def on_row(self, row: Row) -> None:
        """A member of the cluster is new, or has changed."""
        if row.id == self._node.id.hex() and not self._begun:
            # The rest of the broker's list comes in the same piece.
            self._loop.later(0.001, self._begin)
        if row.kind == "home" and row.namespace == self.namespace:
            with contextlib.suppress(ValueError):  # nobody can be reached there
                self._meet(row.id, row.name, row.address)

    def _meet(self, node_id: str, host: str, address: str) -> None:
        """There is a session whose home is that node.

        Raises:
          ValueError: the address is none.
        """
        own = node_id == self._node.id.hex()
        if own or self._closed or node_id in self._neighbors:
            return
        neighbor = Neighbor(self, self._loop, node_id, host)
        channel = self._node.connect(address, neighbor)
        self._neighbors[node_id] = neighbor
        neighbor.open(channel, self._host, self.namespace)

    # -- those that ask this home ------------------------------------------------

    def visited(self, visitor: Visitor, host: str, namespace: str) -> None:
        """A home asks for names. It has proved the cluster's key, and said in the
        opening of its channel which node it is and where it listens.

        Raises:
          Refused, ValueError: it is none of this namespace's, or says no address.
        """
        if namespace != self.namespace:
            raise Refused(f"this session has the namespace {self.namespace!r:.80}")
        self._meet(visitor.node_id, host, visitor.address)
        if visitor.node_id not in self._neighbors:
            raise Refused("this session has ended, or is the asker's own")
        self._visitors.setdefault(visitor.node_id, []).append(visitor)

    def left(self, visitor: Visitor) -> None:
        """Its channel has ended."""
        those = self._visitors.get(visitor.node_id, [])
        if visitor in those:
            those.remove(visitor)
        if not those:
            self._visitors.pop(visitor.node_id, None)

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

    def lost(
        self,
        neighbor: Neighbor,
        labels: Mapping[int, str],
        record: ExitRecord,
        why: str,
    ) -> None:
        """Its channel has ended; `labels` has its actors that are known here."""
        if self._neighbors.get(neighbor.id) is neighbor:
            del self._neighbors[neighbor.id]
        self._departed.add(labels, record)
        self._known = {k: n for k, n in self._known.items() if n is not neighbor}
        self.names.drop_all_elsewhere(neighbor)
        self.polls.lost(neighbor)
        for visitor in self._visitors.pop(neighbor.id, []):
            visitor.end(f"it cannot reach the home of this session: {why}")
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
            neighbor.close(_OVER)
        for visitor in [one for those in self._visitors.values() for one in those]:
            visitor.tell_of_end()
            visitor.end(_OVER)
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
        that has it, answer if that is lost, or do `otherwise`. Later steps go
        through `guard`, so that an error in them is that request's alone."""

        def act(neighbor: Neighbor | None) -> None:
            if not self._loop.is_open(line):
                return
            if neighbor is not None:
                neighbor.request(line, request)
                return
            if isinstance(request, Watch | Locate):
                self.presumed.add(line, request.id)
            answers = self._departed.answer(request)
            for answer in answers or ():
                self._loop.post(line, answer)
            if answers is None:
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
                neighbor.has(actor_id)
            for action in self._seeking.pop(actor_id):
                action(neighbor)

        self.polls.ask(self._neighbors.values(), end, actor_id=actor_id)

    def line_closed(self, line: Line) -> None:
        """A process of this session is gone."""
        self.presumed.forget(line)
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
            done(str(label) if label else winner or self.names.taken_by(name))

        self.polls.ask(self._neighbors.values(), end, name=name)

    def has_claimed(self, name: str, asker: bytes) -> bool:
        """Whether our own claim to a name stands against that of another node. If it
        does not, it is given up."""
        if name not in self._claims or self._claims[name]:
            return False
        if self._node.id < asker:
            return True
        self._claims[name] = STARTING
        return False


#: Hears who has answered with a value that is not None, and that value; None and None
#: if nobody has.
Done = Callable[[Neighbor | None, Any], None]


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


_MOST_DEAD = 1 << 12  # kept for each process; after that the oldest are forgotten


class Presumed:
    """Those of one home's processes, by their lines."""

    def __init__(self) -> None:
        self._dead: dict[Line, dict[int, None]] = {}  # oldest first

    def add(self, line: Line, process_id: int) -> None:
        """The process at the end of `line` hears that this one is dead."""
        dead = self._dead.setdefault(line, {})
        dead[actor_of(process_id)] = None
        if len(dead) > _MOST_DEAD:
            del dead[next(iter(dead))]

    def has(self, line: Line, process_id: int) -> bool:
        """Whether that process takes this one for dead."""
        return actor_of(process_id) in self._dead.get(line, ())

    def forget(self, line: Line) -> None:
        """A process of this session is gone."""
        self._dead.pop(line, None)


class Departed:
    """Those that this home knew of, by id, with the cause of their end."""

    def __init__(self) -> None:
        self._ends: dict[int, tuple[str, ExitRecord]] = {}  # oldest first

    def add(self, labels: Mapping[int, str], record: ExitRecord) -> None:
        """The session that had these actors is lost."""
        for actor_id, label in labels.items():
            self._ends.pop(actor_id, None)
            self._ends[actor_id] = label, record
        while len(self._ends) > MOST:
            del self._ends[next(iter(self._ends))]

    def answer(self, request: Served) -> list[Message] | None:
        """The answer to somebody who asks for one of them; None: it is none of them."""
        end = self._ends.get(actor_of(request.id))
        if end is None:
            return None
        asker, (label, record) = Asker(0), end
        asker.note(request, label)
        return asker.last_words(record)
