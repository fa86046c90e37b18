# SPDX-License-Identifier: MIT
"""The members of the cluster, as its brokers tell: one agent's view of them.

Brokers forget: one that was started again knows nobody for a moment. So a member is
gone when a broker says that it has left, and no other broker has it. That a broker has
been lost says nothing about members; they are kept until a broker has been there for
`SETTLED_S` without naming them. While there is no broker at all, all are kept.

A pure state machine: the time comes with each call.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from mooactor.host.members import Row

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
