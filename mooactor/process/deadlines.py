# SPDX-License-Identifier: MIT
"""Deadlines of calls: the housekeeper ends a call then, also if nobody waits for it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mooactor.control.clock import REAL, Clock
from mooactor.process.objects.future import Future

if TYPE_CHECKING:
    from mooactor.process.housekeeper import Housekeeper

_AGAIN_S = 0.1


class Deadlines:
    """Those of one process's calls.

    Invariant: while `_next` is in the future, `_expire` is due then, or before. A
    signal handler may come between any two lines, and raise, or wait for a call with a
    deadline of its own.
    """

    def __init__(
        self,
        pending: dict[int, Future],
        housekeeper: Housekeeper,
        clock: Clock = REAL,
    ) -> None:
        """`pending`: the calls that have not ended, by id."""
        self._pending = pending
        self._now = clock.now
        self._housekeeper = housekeeper
        self._next = math.inf

    def limit(self, future: Future, deadline: float) -> None:
        """End a pending call at `deadline`, a time of the clock."""
        future.deadline = deadline
        if deadline < self._next or self._next < self._now():
            self._housekeeper.at(deadline, self._expire)
            self._next = deadline

    def _expire(self) -> None:
        """End calls past their deadline; come again for the next one."""
        self._next = math.inf  # before the calls are looked at: later ones see it
        following = self._now() + _AGAIN_S  # if one of them cannot be told
        try:
            following = self._end_overdue()
        finally:
            if following < self._next:
                self._housekeeper.at(following, self._expire)
                self._next = following

    def _end_overdue(self) -> float:
        """End calls past their deadline, also if a signal handler cut short that
        somebody else did; the earliest deadline of the others."""
        now, following = self._now(), math.inf
        for future in list(self._pending.values()):
            if future.deadline is None or future.is_over():
                continue
            if future.deadline <= now:
                future.expire()
            else:
                following = min(following, future.deadline)
        return following
