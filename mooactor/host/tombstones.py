# SPDX-License-Identifier: MIT
"""What stays of a session's actors that will not run again: the records of their ends.

A restarted supervisor finds its children's records, so these stay while they are in its
books; and while somebody waits for the end of what an actor owned, so does that actor.
Of the others the oldest go, and are as if they had never been.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from mooactor.host.supervised import Supervised

if TYPE_CHECKING:
    from mooactor.host.home import Home

_MOST = 1 << 14


class Tombstones:
    """Those of one session."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._dead: deque[Supervised] = deque()  # about in the order of their ends

    def add(self, actor: Supervised) -> None:
        """It will not run again: drop what only a living one needs, and its names."""
        home = self._home
        payload, snapshot = actor.payload, actor.snapshot
        actor.over_now()
        del home.living[actor.id]
        home.sites.unplace([actor.id])
        home.whereabouts.forget(actor)
        home.names.free(actor)
        home.bonds.drop(actor)
        home.shelf.drop(payload)
        home.shelf.drop(snapshot)
        home.lifetimes.release(actor)
        self._dead.append(actor)
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        # Two at most, for those that cannot go now are looked at again and again.
        for _ in range(min(2, len(self._dead) - _MOST)):
            oldest = self._dead.popleft()
            if oldest.gone and oldest.member is None:
                del self._home.actors[oldest.id]
            else:
                self._dead.append(oldest)
