# SPDX-License-Identifier: MIT
"""`Row`: one line of the table, with its goal."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Goal:
    """At most, or at least, `bound`: times the peer's value, or by itself."""

    sense: Literal["at most", "at least"]
    bound: float
    peer: str = ""

    def met_by(self, row: Row) -> bool:
        value = row.ours / row.peers[self.peer] if self.peer else row.ours
        return value <= self.bound if self.sense == "at most" else value >= self.bound

    def text(self, unit: str) -> str:
        sign = "≤" if self.sense == "at most" else "≥"
        what = f"× {self.peer}" if self.peer else unit
        return f"{sign} {short(self.bound)} {what}"


@dataclass(frozen=True)
class Row:
    """One measurement: `ours` and its `peers`, all in `unit`."""

    name: str
    work: str
    unit: str
    ours: float
    peers: dict[str, float] = field(default_factory=dict)
    goal: Goal | None = None

    def ratios(self) -> dict[str, float]:
        """The ratio of `ours` to each peer; below 1 is faster for times, above for
        rates."""
        return {peer: self.ours / value for peer, value in self.peers.items()}

    def as_json(self) -> dict[str, Any]:
        """The fields, the ratios, and whether the goal is met (None without one)."""
        met = self.goal.met_by(self) if self.goal else None
        return asdict(self) | {"ratios": self.ratios(), "met": met}

    @staticmethod
    def from_json(fields: dict[str, Any]) -> Row:
        """The row that `as_json` described."""
        goal = fields["goal"]
        kept = {
            name: fields[name] for name in ("name", "work", "unit", "ours", "peers")
        }
        return Row(**kept, goal=Goal(**goal) if goal else None)


@dataclass(frozen=True)
class Skipped:
    """A row, or group of rows, that could not be measured here."""

    name: str
    reason: str


def short(value: float) -> str:
    """Three significant digits, and no more zeros than needed: 77 k, 12.4, 0.03."""
    if value >= 10_000:
        return f"{value / 1000:.3g} k"
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"
