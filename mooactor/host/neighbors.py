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
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mooactor.control.keys import actor_of
from mooactor.control.lifeline import Message
from mooactor.control.node import Node
from mooactor.host.eventloop import EventLoop, Line
from mooactor.host.membership import Membership
from mooactor.host.names import STARTING, Names
from mooactor.host.neighbor import Neighbor
from mooactor.host.rows import Row

_SETTLED_S = 5.0  # a session whose home is stopped is not waited for any longer
_AGAIN_S = 1.0  # after a lost channel, if the broker still knows that session


@dataclass
class _Poll:
    """A question to every neighbor: over when all have answered, or one with a value
    that is not None."""

    done: Callable[[Neighbor | None, Any], None]
    open: set[Neighbor] = field(default_factory=set)


class Neighbors:
    """Those of one home, for as long as it is in the cluster."""

    def __init__(
        self, namespace: str, names: Names, node: Node, loop: EventLoop
    ) -> None:
        self.namespace = namespace
        self.names = names
        self.membership: Membership | None = None  # set once it is there
        self._node = node
        self._loop = loop
        self._neighbors: dict[str, Neighbor] = {}  # by node id
        self._known: dict[int, Neighbor] = {}  # by actor of theirs
        self._seeking: dict[int, list[Callable[[Neighbor | None], None]]] = {}
        self._claims: dict[str, str] = {}  # by name: who has won it against us
        self._polls: dict[int, _Poll] = {}
        self._numbers = 0
        self._begun = self._closed = False
        self._when_settled: list[Callable[[], None]] = []

    # -- who they are ----------------------------------------------------------

    def on_row(self, row: Row) -> None:
        """A member of the cluster is new, or has changed."""
        if row["id"] == self._node.id.hex() and not self._begun:
            # The rest of the broker's list comes in the same piece.
            self._loop.later(0.001, self._begin)
        if self._is_neighbor(row) and row["id"] not in self._neighbors:
            neighbor = Neighbor(self, self._loop, row)
            self._neighbors[row["id"]] = neighbor
            neighbor.open(self._node.connect(row["address"], neighbor))

    def knows(self, node_id: bytes) -> bool:
        """Whether that home is a neighbor."""
        return node_id.hex() in self._neighbors

    def _is_neighbor(self, row: Row) -> bool:
        ours = row["kind"] == "home" and row.get("namespace") == self.namespace
        return ours and not self._closed and row["id"] != self._node.id.hex()

    def _begin(self) -> None:
        self._begun = True
        self._loop.later(_SETTLED_S, self._settle)
        self.look()

    def _settle(self) -> None:
        for neighbor in self._neighbors.values():
            neighbor.told = True
        self.look()

    def when_settled(self, action: Callable[[], None]) -> None:
        """Call `action` once the names of all sessions are known."""
        self._when_settled.append(action)
        self.look()

    def look(self) -> None:
        """One has told its names, or is lost."""
        if self._begun and all(one.told for one in self._neighbors.values()):
            actions, self._when_settled = self._when_settled, []
            for action in actions:
                action()

    def lost(self, neighbor: Neighbor) -> None:
        """Its channel has ended."""
        self._neighbors = {
            k: n for k, n in self._neighbors.items() if n is not neighbor
        }
        self._known = {k: n for k, n in self._known.items() if n is not neighbor}
        self.names.drop_all_elsewhere(neighbor)
        for number in list(self._polls):
            self.answered(neighbor, number, None)
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

    # -- questions to all of them ------------------------------------------------

    def _poll(
        self, done: Callable[[Neighbor | None, Any], None], **question: Any
    ) -> None:
        self._numbers += 1
        number = self._numbers
        poll = self._polls[number] = _Poll(done, set(self._neighbors.values()))
        for neighbor in list(poll.open):
            neighbor.post("poll", number=number, **question)
        self._end_if_over(number)

    def answered(self, neighbor: Neighbor, number: int, value: Any) -> None:
        """One has answered a question; None: it knows nothing of that, or is lost."""
        poll = self._polls.get(number)
        if poll is None or neighbor not in poll.open:
            return
        poll.open.discard(neighbor)
        if value is not None:
            del self._polls[number]
            poll.done(neighbor, value)
        else:
            self._end_if_over(number)

    def _end_if_over(self, number: int) -> None:
        poll = self._polls.get(number)
        if poll is not None and not poll.open:
            del self._polls[number]
            poll.done(None, None)

    # -- actors of theirs ----------------------------------------------------------

    def take(self, line: Line, message: Message, otherwise: Callable[[], None]) -> None:
        """A request for an actor that is not of this session: hand it on to the session
        that has it, or do `otherwise`."""

        def found(neighbor: Neighbor | None) -> None:
            if not self._loop.is_open(line):
                return
            if neighbor is None or not neighbor.request(line, message):
                otherwise()

        self._find(actor_of(message["id"]), found)

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

        self._poll(end, about="actor", id=actor_id)

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
            done(str(label) if label else winner or self.names.taken_by(name))

        self._poll(end, about="name", name=name)

    def has_claimed(self, name: str, asker: bytes) -> bool:
        """Whether our own claim to a name stands against that of another node. If it
        does not, it is given up."""
        if name not in self._claims or self._claims[name]:
            return False
        if self._node.id < asker:
            return True
        self._claims[name] = STARTING
        return False
