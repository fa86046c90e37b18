# SPDX-License-Identifier: MIT
"""An agent's place in a cluster: it is known to the brokers, and knows the others.

The agent announces itself to every broker that it knows of: those of its list, and the
stand-bys that these tell it of. It says each second that it lives, and anew what it is
whenever that has changed. A broker that is lost is tried again for ever. So a broker
that was killed and started again learns all that it knew within two seconds, and a
stand-by knows it already.

All in the thread of the agent's event loop; nothing blocks.

The members, as the brokers tell, are a `Census`: one agent's view of them. Brokers
forget: one that was started again knows nobody for a moment. So a member is gone when a
broker says that it has left, and no other broker has it. That a broker has been lost
says nothing about members; they are kept until a broker has been there for `SETTLED_S`
without naming them. While there is no broker at all, all are kept. A census is a pure
state machine: the time comes with each call.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mooactor.control.node import Node
from mooactor.host.addresses import is_reachable
from mooactor.host.brokerlink import BrokerLink
from mooactor.host.members import Row
from mooactor.times import MEMBER_BEAT_S

TOGETHER_S = 0.05  # changes within this time are announced as one
_MOST_BROKERS = 16

Later = Callable[[float, Callable[[], None]], None]


def _ignore(*_: Any) -> None: ...


class Membership:
    """Keeps a node announced, and the other members in view.

    Args:
      node: the agent's.
      addresses: of the brokers, at least one, each ``tcp://ADDR:PORT``.
      announcement: makes this member's row. Called each second at least.
      later: calls a function after so many seconds.
      watch: whether `hosts` is kept up; only agents that place actors need it.
      on_joined: a broker has taken the announcement; with its address and sentences on
        versions that differ. Again for each broker, and after each time it was lost.
      on_refused: a broker refuses it; with its address and why. That is tried again
        each second, and told once. `brokers` says whether others have taken it.
      on_hopeless: after `on_refused`, likewise, if it will not change by itself:
        another live node has the name, or the broker another key.
      on_lost: the connection to a broker has ended; with its address and why.
      on_host: a member is new, or its row has changed. One's own row comes, too.
      on_gone: a member is gone; with its last row and why.
    """

    def __init__(
        self,
        node: Node,
        addresses: Sequence[str],
        announcement: Callable[[], Row],
        later: Later,
        *,
        watch: bool = True,
        on_joined: Callable[[str, list[str]], None] = _ignore,
        on_refused: Callable[[str, str], None] = _ignore,
        on_hopeless: Callable[[str, str], None] = _ignore,
        on_lost: Callable[[str, str], None] = _ignore,
        on_host: Callable[[Row], None] = _ignore,
        on_gone: Callable[[Row, str], None] = _ignore,
    ) -> None:
        self.node, self.later, self.watch = node, later, watch
        self.announcement = announcement
        self.on_refused, self.on_hopeless = on_refused, on_hopeless
        self._on_joined, self._on_lost = on_joined, on_lost
        self._on_host, self._on_gone = on_host, on_gone
        self._census = Census()
        self._own = list(dict.fromkeys(addresses))
        self._links: dict[str, BrokerLink] = {}
        self._told: dict[str, list[str]] = {}  # stand-bys, by the broker naming them
        self._aliases: set[str] = set()  # other addresses of brokers that have a link
        self._changed = self.closed = False
        self._follow_all()
        later(MEMBER_BEAT_S, self._beat)

    @property
    def hosts(self) -> dict[str, Row]:
        """The rows of the hosts that are there, by name; see `Census`."""
        return self._census.hosts()

    def members(self) -> list[Row]:
        """The rows of all members, homes included."""
        return self._census.rows()

    def brokers(self) -> list[str]:
        """The addresses of the brokers that have taken the announcement."""
        return [address for address, link in self._links.items() if link.joined]

    def changed(self) -> None:
        """The announcement has changed: tell it soon, without waiting for the beat."""
        if not self._changed and not self.closed:
            self._changed = True
            self.later(TOGETHER_S, self._announce_changes)

    def close(self) -> None:
        """Leave: the brokers learn of it at once, and the others from them."""
        self.closed = True
        for link in self._links.values():
            link.close()
        self._links.clear()

    def _announce_changes(self) -> None:
        self._changed = False
        if not self.closed:
            row = self.announcement()
            for link in list(self._links.values()):
                link.announce(row)

    def _beat(self) -> None:
        if self.closed:
            return
        self.later(MEMBER_BEAT_S, self._beat)
        row = self.announcement()
        for link in list(self._links.values()):
            link.beat(row)
        for gone in self._census.settle(self.node.clock.now()):
            self._on_gone(gone, "no broker knows it any more")
        self._follow_all()

    # -- brokers -----------------------------------------------------------

    def _follow_all(self) -> None:
        """Have a link to each broker that is known of now."""
        for address in set(self._links) - set(self._wanted()):
            self._links.pop(address).close()
            self._census.lose(address)
        for address in self._wanted():
            if address not in self._links:
                self._links[address] = BrokerLink(self, address)
                self._links[address].open()

    def _wanted(self) -> list[str]:
        # A broker that was just started again knows of no stand-by yet: those that are
        # there are kept. To leave one means to others that this member is gone.
        told = [address for some in self._told.values() for address in some]
        known = dict.fromkeys([*self._own, *self.brokers(), *told])
        return [a for a in known if a not in self._aliases][:_MOST_BROKERS]

    def joined(self, link: BrokerLink, notes: list[str]) -> None:
        """A broker has taken the announcement."""
        same = [other for other in self._links.values() if other.peer == link.peer]
        for other in same[1:]:  # the stand-by is one of our list, by another name
            self._aliases.add(other.address)
        self._on_joined(link.address, notes)
        if len(same) > 1:
            self._follow_all()

    def introduced(self, broker: str, addresses: list[str]) -> None:
        """A broker has these stand-bys. They are followed when it is lost, too."""
        self._told[broker] = [a for a in addresses if is_reachable(a)]
        self._follow_all()

    def lost(self, broker: str, why: str) -> None:
        self._census.lose(broker)
        self._on_lost(broker, why)

    # -- members -----------------------------------------------------------

    def begin(self, broker: str, rows: list[Row]) -> None:
        for row in self._census.begin(broker, rows, self.node.clock.now()):
            self._on_host(row)

    def put(self, broker: str, row: Row) -> None:
        if self._census.put(broker, row):
            self._on_host(row)

    def remove(self, broker: str, node_id: str, why: str) -> None:
        row = self._census.remove(broker, node_id)
        if row is not None:
            self._on_gone(row, why)


SETTLED_S = 3.0


@dataclass(slots=True)
class _Known:
    row: Row
    brokers: set[Hashable] = field(default_factory=set)  # that have it now


class Census:
    """Rows by the node's id. Each method returns its changes, in order."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._since: dict[Hashable, float] = {}  # brokers that are there

    def rows(self) -> list[Row]:
        return [known.row for known in self._known.values()]

    def hosts(self) -> dict[str, Row]:
        """The rows of hosts, by name."""
        return {row.name: row for row in self.rows() if row.kind == "host"}

    def begin(self, broker: Hashable, rows: list[Row], now: float) -> list[Row]:
        """A broker is there and has these members: the rows that are new."""
        self._since[broker] = now
        for known in self._known.values():
            known.brokers.discard(broker)
        return [row for row in rows if self.put(broker, row)]

    def put(self, broker: Hashable, row: Row) -> bool:
        """A broker has a member with this row; False if that is no news."""
        known = self._known.get(row.id)
        if known is not None:
            known.brokers.add(broker)
            changed, known.row = known.row != row, row
            return changed
        self._known[row.id] = _Known(row, {broker})
        return True

    def remove(self, broker: Hashable, node_id: str) -> Row | None:
        """A broker says that a member has left: its row if that is the end of it."""
        known = self._known.get(node_id)
        if known is None:
            return None
        known.brokers.discard(broker)
        return None if known.brokers else self._known.pop(node_id).row

    def lose(self, broker: Hashable) -> None:
        """A broker is gone, which is no news of members."""
        self._since.pop(broker, None)
        for known in self._known.values():
            known.brokers.discard(broker)

    def settle(self, now: float) -> list[Row]:
        """The members that no broker has named although one has had the time."""
        if all(since + SETTLED_S > now for since in self._since.values()):
            return []
        gone = [key for key, known in self._known.items() if not known.brokers]
        return [self._known.pop(key).row for key in gone]
