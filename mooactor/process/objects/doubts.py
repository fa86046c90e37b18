# SPDX-License-Identifier: MIT
"""Counts in doubt: those that are being recounted, and whether they change meanwhile.

The table's lock is held around each method but `take_changed` and `drop`, which take
it themselves.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

Key = tuple[int, int, int]  # object id, holder, lender


class Doubts:
    """Those of one table."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._rounds: dict[Key, int] = {}
        self._changed: set[Key] = set()

    def __bool__(self) -> bool:
        return bool(self._rounds)

    def add(self, keys: Iterable[Key], number: int) -> None:
        """These are counted in round `number`, instead of an earlier one."""
        for key in keys:
            self._rounds[key] = number
            self._changed.discard(key)

    def note(self, key: Key) -> None:
        """A count has changed."""
        if key in self._rounds:
            self._changed.add(key)

    def settle(self, key: Key, number: int) -> bool | None:
        """It was counted in round `number`: whether the number holds, because nothing
        has changed. None: it is not of that round any more."""
        if self._rounds.get(key) != number:
            return None
        del self._rounds[key]
        changed = key in self._changed
        self._changed.discard(key)
        return not changed

    def take_changed(self, number: int) -> tuple[list[Key], list[Key]]:
        """The keys of a round that are as they were; and the others, which leave it."""
        with self._lock:
            keys = [key for key, its in self._rounds.items() if its == number]
            changed = [key for key in keys if key in self._changed]
            for key in changed:
                self.settle(key, number)
        return [key for key in keys if key not in set(changed)], changed

    def drop(self, number: int) -> None:
        """Give a round up."""
        with self._lock:
            for key in [key for key, its in self._rounds.items() if its == number]:
                self.settle(key, number)
