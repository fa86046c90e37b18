# SPDX-License-Identifier: MIT
"""Actors of other sessions that processes of this one take for dead.

Their home has not said so: it was lost, or unknown at that time. A process sends one
that it takes for dead nothing any more, answers included, for as long as it lives. So
if that session is found again, its processes must not call this one.
"""

from __future__ import annotations

from mooactor.control.keys import actor_of
from mooactor.host.eventloop import Line

MOST = 1 << 12  # kept for each process; after that the oldest are forgotten


class Presumed:
    """Those of one home's processes, by their lines."""

    def __init__(self) -> None:
        self._dead: dict[Line, dict[int, None]] = {}  # oldest first

    def add(self, line: Line, process_id: int) -> None:
        """The process at the end of `line` hears that this one is dead."""
        dead = self._dead.setdefault(line, {})
        dead[actor_of(process_id)] = None
        if len(dead) > MOST:
            del dead[next(iter(dead))]

    def has(self, line: Line, process_id: int) -> bool:
        """Whether that process takes this one for dead."""
        return actor_of(process_id) in self._dead.get(line, ())

    def forget(self, line: Line) -> None:
        """A process of this session is gone."""
        self._dead.pop(line, None)
