# SPDX-License-Identifier: MIT
"""The broker, as seen by a launcher that does not hold it by a pipe."""

from __future__ import annotations

import time

from mooactor.control.channel import Channel
from mooactor.control.messages import Malformed
from mooactor.control.node import Node
from mooactor.host.eventloop import EventLoop
from mooactor.host.members import (
    FROM_BROKER,
    Changed,
    Gone,
    Members,
    Row,
    Still,
    Stop,
    row_of,
    rows_of,
)
from mooactor.host.members import Watch as WatchMembers

_RETRY_S = 0.2
_SHORTEST_S, _LONGEST_S = 0.02, 0.5


class Watch:
    """A channel to the broker, opened again whenever it has closed.

    Args:
      members: whether to keep `hosts` up to date. Otherwise the broker is only watched.
    """

    def __init__(
        self, loop: EventLoop, key: bytes, address: str, *, members: bool = False
    ) -> None:
        self.hosts: dict[str, Row] = {}  # rows of `mooactor host`s, by name
        self._loop, self._address, self._members = loop, address, members
        self._node = Node(key)  # nobody needs to reach it
        self._lost_since: float | None = time.monotonic()
        self.told_to_end = False  # the broker that was lost last, and took leave
        self._closed = False
        self._listed: list[Row] = []  # of a list that is still coming
        loop.watch(self._node.fileno(), self._node.serve)
        self._open()
        self._tick()

    @property
    def lost_s(self) -> float:
        """For how long there has been no broker."""
        return time.monotonic() - self._lost_since if self._lost_since else 0.0

    def _open(self) -> None:
        if not self._closed:
            channel = self._node.connect(self._address, self)
            # Whoever has not announced itself gets an answer to this, too.
            channel.post(WatchMembers() if self._members else Still())

    def _tick(self) -> None:
        if self._closed:
            return
        due = self._node.due()
        left = _LONGEST_S if due is None else due - time.monotonic()
        if left <= 0:
            self._node.serve()
        self._loop.later(max(_SHORTEST_S, min(left, _LONGEST_S)), self._tick)

    def handle(self, channel: Channel, data: bytes) -> None:
        """News of the broker's."""
        self._lost_since = None
        try:
            message = FROM_BROKER.decode(data)
        except Malformed:
            return  # it is of a later version
        if isinstance(message, Members):
            self._listed += [row for row, _ in rows_of(message)]
            if not message.more:
                self.hosts.clear()
                listed, self._listed = self._listed, []
                for row in listed:
                    self._put(row)
        elif isinstance(message, Changed):
            self._put(row_of(message.row))
        elif isinstance(message, Gone):
            known = self.hosts.get(message.name)
            if known is not None and known.id == message.id:
                del self.hosts[known.name]

    def _put(self, row: Row | None) -> None:
        if row is not None and row.kind == "host":
            self.hosts[row.name] = row

    def channel_closed(self, channel: Channel, why: str) -> None:
        """The broker is gone, or not there yet: try again."""
        self._lost_since = self._lost_since or time.monotonic()
        if channel.peer:
            self.told_to_end = channel.parted
        self._listed = []
        self._loop.later(_RETRY_S, self._open)

    def stop(self, name: str) -> None:
        """Have a host end, as `mooactor stop` does."""
        channel = self._node.connect(self.hosts[name].address, _Nobody())
        channel.post(Stop("its launcher"))

    def close(self) -> None:
        self._closed = True
        self._loop.unwatch(self._node.fileno())
        self._node.close()


class _Nobody:
    """The listener of a channel whose answers do not matter."""

    def handle(self, channel: Channel, data: bytes) -> None: ...

    def channel_closed(self, channel: Channel, why: str) -> None: ...
