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

import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mooactor.control import frames
from mooactor.control.channel import Channel, Listener
from mooactor.control.fingerprints import OTHER_KEY
from mooactor.control.messages import Malformed, Message, encode, head_of
from mooactor.control.node import Node
from mooactor.control.outgoing import OutgoingChannel
from mooactor.host.addresses import is_reachable
from mooactor.host.members import (
    FAREWELL,
    FROM_BROKER,
    Announce,
    AnnounceAgain,
    Brokers,
    Changed,
    Gone,
    Joined,
    Members,
    Refusal,
    Row,
    Size,
    Still,
    Watch,
    load_average,
    row_of,
    rows_of,
)
from mooactor.times import BROKER_BEAT_S, MEMBER_BEAT_S, NAME_PATIENCE_S

# A broker that is started again is met by all its members at once, and does a thousand
# joins a second at best. So members spread their attempts by their number: up to a
# thousand of them are known again within 2 s, and ten thousand within 13 s. They wait
# longer after each failure, unless nothing listens: that costs nobody anything.
RETRY_S = 0.1
_JOINS_PER_S = 800
_FIRST_SPREAD_S = 0.25
_LONGEST_SPREAD_S = 8.0
_ABSENT = "nothing listens"  # in the reason for which a channel has ended
_MOST_MEMBERS = 1 << 14
_NAME_RETRY_S = 0.2
TOGETHER_S = 0.05  # changes within this time are announced as one
_MOST_BROKERS = 16

Later = Callable[[float, Callable[[], None]], None]


def _ignore(*_: Any) -> None: ...


def connect(node: Node, address: str, listener: Listener) -> OutgoingChannel:
    """A member's channel to a broker, which has to do with each member once a second:
    the acknowledgements go with what is said anyway."""
    return node.connect(address, listener, beat_s=BROKER_BEAT_S, late_acks=True)


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
      on_refused: a broker refuses it; with its address, why, and whether that will not
        change by itself: another live node has the name, or the broker another key.
        That is tried again each second, and told once.
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
        on_refused: Callable[[str, str, bool], None] = _ignore,
        on_lost: Callable[[str, str], None] = _ignore,
        on_host: Callable[[Row], None] = _ignore,
        on_gone: Callable[[Row, str], None] = _ignore,
    ) -> None:
        self.node, self.later, self.watch = node, later, watch
        self.announcement = announcement
        self.on_refused = on_refused
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


class BrokerLink:
    """Announces a member to the broker at one address, for as long as it is open.

    Invariant: who is told that the broker has taken it can see all members that the
    broker knows, if it watches them.
    """

    def __init__(self, membership: Membership, address: str) -> None:
        self.address = address
        self.joined = False
        self.peer = b""  # the broker's node, once the membership has been told
        self._membership = membership
        self._channel: Channel | None = None
        self._announced: Row | None = None
        self._closed = False
        self._refused_since: float | None = None
        self._complained = False
        self._members = 0  # of the cluster, as the broker has told
        self._failures = 0
        self._listed: list[Row] = []
        self._actions: dict[type[Message], Callable[[Any], None]] = {
            Joined: self._joined,
            Refusal: self._refused,
            AnnounceAgain: lambda _: self._announce_anew(),
            Brokers: lambda message: self._introduced(message.addresses),
            Size: lambda message: self._size(message.members),
            Members: self._hosts,
            Changed: self._host,
            Gone: self._gone,
        }

    def open(self) -> None:
        """Connect, and announce; the channel keeps both until the broker is there."""
        if self._closed or self._channel is not None:
            return
        node = self._membership.node
        self._channel = connect(node, self.address, self)
        self._listed.clear()
        if self._membership.watch:
            self._post(Watch())  # the answer comes before `Joined`
        self._announce_anew()

    def close(self) -> None:
        """Leave this broker, for good."""
        self._closed, self.joined = True, False
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close(FAREWELL)

    def announce(self, row: Row) -> bool:
        """Announce the row if it is news to the broker."""
        if row == self._announced or self._channel is None:
            return False
        self._announced = row
        self._post(Announce(encode(row), load_average()))
        return True

    def beat(self, row: Row) -> None:
        """Once a second: the member lives."""
        if not self.announce(row):
            self._post(Still(load_average()))

    def _announce_anew(self) -> None:
        self._announced = None
        if not self._closed:
            self.announce(self._membership.announcement())

    def _post(self, message: Message) -> None:
        if self._channel is not None:
            self._channel.post(message)

    # -- the broker's news -------------------------------------------------

    def handle(self, channel: Channel, data: bytes) -> None:
        """Act on a message of the broker's; unknown ones are of a later version. One
        that is malformed costs this link its channel, and the agent nothing."""
        if channel is not self._channel:
            return
        try:
            message = FROM_BROKER.decode(data)
        except Malformed as error:
            if head_of(data).type in FROM_BROKER.tags:
                why = f"it sent a malformed message: {error!s:.200}"
                channel.close(why)
                self.channel_closed(channel, why)
            return
        action = self._actions.get(type(message))
        if action is not None:
            action(message)

    def channel_closed(self, channel: Channel, why: str) -> None:
        """The broker is gone, or was never there: try again soon, for ever."""
        if channel is not self._channel:
            return
        other_key, lost = OTHER_KEY in why, self.joined
        refused = other_key or frames.OTHER_WIRE in why
        self._channel, self.joined, self.peer = None, False, b""
        if lost or not refused:
            self._membership.lost(self.address, why)
        if refused:
            self._complain(why, hopeless=other_key)
        self._failures = 0 if _ABSENT in why else self._failures + 1
        self._membership.later(self._delay_s(), self.open)

    def _delay_s(self) -> float:
        doubled = _FIRST_SPREAD_S * 2.0 ** min(self._failures, 8)
        spread = max(self._members / _JOINS_PER_S, min(_LONGEST_SPREAD_S, doubled))
        return RETRY_S + random.uniform(0, spread)

    def _joined(self, message: Joined) -> None:
        self.joined = True
        self._refused_since, self._complained, self._failures = None, False, 0
        self._size(message.members)
        if self._channel is not None:
            self.peer = self._channel.peer
            self._membership.joined(self, message.notes)
        self._introduced(message.brokers)

    def _size(self, members: int) -> None:
        self._members = min(members, _MOST_MEMBERS)

    def _introduced(self, addresses: list[str]) -> None:
        if not self._closed:
            self._membership.introduced(self.address, addresses)

    def _refused(self, message: Refusal) -> None:
        self.joined, self._announced = False, None  # so the next beat tries again
        now = self._membership.node.clock.now()
        if self._refused_since is None:
            self._refused_since = now
        if message.taken and now - self._refused_since < NAME_PATIENCE_S:
            self._membership.later(_NAME_RETRY_S, self._try_again)
        else:
            self._complain(message.why, message.taken)

    def _complain(self, why: str, hopeless: bool) -> None:
        if not self._complained:
            self._complained = True
            self._membership.on_refused(self.address, why, hopeless)

    def _try_again(self) -> None:
        if self._announced is None:
            self._announce_anew()

    def _hosts(self, message: Members) -> None:
        self._listed += [row for row, _ in rows_of(message)]
        if not message.more:
            listed, self._listed = self._listed, []
            self._membership.begin(self.address, listed)

    def _host(self, message: Changed) -> None:
        row = row_of(message.row)
        if row is not None:
            self._membership.put(self.address, row)

    def _gone(self, message: Gone) -> None:
        self._membership.remove(self.address, message.id, message.why)


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
