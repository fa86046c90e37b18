# SPDX-License-Identifier: MIT
"""Deadlines of calls: the housekeeper ends a call then, also if nobody waits for it."""

from __future__ import annotations

import math
from time import perf_counter
from typing import TYPE_CHECKING

from mooactor.process.objects.future import Future

if TYPE_CHECKING:
    from mooactor.process.housekeeper import Housekeeper


class Deadlines:
    """Those of one process's calls."""

    def __init__(self, pending: dict[int, Future], housekeeper: Housekeeper) -> None:
        """`pending`: the calls that have not ended, by id."""
        self._pending = pending
        self._housekeeper = housekeeper
        self._next = math.inf

    def limit(self, future: Future, deadline: float) -> None:
        """End a call at `deadline`, in seconds of `perf_counter`."""
        future.deadline = deadline
        if deadline < self._next:
            self._next = deadline
            self._housekeeper.at(deadline, self._expire)

    def _expire(self) -> None:
        """End calls past their deadline; come again for the next one."""
        self._next = math.inf
        now, following = perf_counter(), math.inf
        for future in list(self._pending.values()):
            if future.deadline is None or future.state:
                continue
            if future.deadline <= now:
                future.expire()
            else:
                following = min(following, future.deadline)
        if following < self._next:
            self._next = following
            self._housekeeper.at(following, self._expire)
