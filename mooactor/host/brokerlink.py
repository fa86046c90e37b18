# SPDX-License-Identifier: MIT
"""A member's side of one broker: a channel, opened again whenever it has closed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mooactor.control import frames
from mooactor.control.channel import Channel, Listener
from mooactor.control.messages import Malformed, Message, encode, head_of
from mooactor.control.node import Node
from mooactor.control.outgoing import OutgoingChannel
from mooactor.control.secret import OTHER_KEY
from mooactor.host.leaving import FAREWELL
from mooactor.host.members import (
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
from mooactor.times import BROKER_BEAT_S, NAME_PATIENCE_S

if TYPE_CHECKING:
    from mooactor.host.membership import Membership

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


def connect(node: Node, address: str, listener: Listener) -> OutgoingChannel:
    """A member's channel to a broker, which has to do with each member once a second:
    the acknowledgements go with what is said anyway."""
    return node.connect(address, listener, beat_s=BROKER_BEAT_S, late_acks=True)


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
        self._sees_all = not membership.watch
        self._notes: list[str] | None = None  # of a broker that has taken it; untold
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
        self._sees_all, self._notes = not self._membership.watch, None
        self._announce_anew()
        if self._membership.watch:
            self._post(Watch())

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
        self._notes = message.notes
        self._tell()
        self._introduced(message.brokers)

    def _tell(self) -> None:
        notes, channel = self._notes, self._channel
        if notes is not None and channel is not None and self._sees_all:
            self._notes, self.peer = None, channel.peer
            self._membership.joined(self, notes)

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
            self._membership.on_refused(self.address, why)
            if hopeless:
                self._membership.on_hopeless(self.address, why)

    def _try_again(self) -> None:
        if self._announced is None:
            self._announce_anew()

    def _hosts(self, message: Members) -> None:
        self._listed += [row for row, _ in rows_of(message)]
        if not message.more:
            listed, self._listed = self._listed, []
            self._membership.begin(self.address, listed)
            self._sees_all = True
            self._tell()

    def _host(self, message: Changed) -> None:
        row = row_of(message.row)
        if row is not None:
            self._membership.put(self.address, row)

    def _gone(self, message: Gone) -> None:
        self._membership.remove(self.address, message.id, message.why)
