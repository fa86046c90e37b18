# SPDX-License-Identifier: MIT
"""The results of a group's queued operations.

Invariant: operations take effect in the order queued, also where tensors are staged
(see `buffers`). A staged tensor is copied when its operation is queued, and its result
copied back after; in between, the copy is the tensor. So

- an operation on the very same tensor uses the same copy, which has the result of the
  one before when its turn comes;
- one on other memory that overlaps it has no such copy, and is refused;
- results are copied back in the order queued, by the thread that waits for them or for
  a later operation.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from mooactor.learner.buffers import Buffer
from mooactor.learner.places import Place
from mooactor.tensors.collective import SharedWork


class Entry:
    """One operation and its results' places."""

    __slots__ = ("work", "targets", "label", "error")

    def __init__(self, work: SharedWork, targets: Sequence[Buffer], label: str) -> None:
        self.work, self.targets, self.label = work, targets, label
        self.error: Exception | None = None  # of copying back


class Queued:
    """The queued operations. `lock` is held while one is prepared and queued."""

    __slots__ = ("lock", "_entries")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._entries: deque[Entry] = deque()

    def staged(self, place: Place) -> Any:
        """The present copy of exactly this tensor, or None."""
        for entry in reversed(self._entries):
            for target in entry.targets:
                if target.staged == place:
                    return target.holder
        return None

    def refuse_overlaps(self, buffers: Iterable[Buffer]) -> None:
        """Refuse an operation on memory whose value is in a copy elsewhere.

        Raises:
          ValueError: a tensor overlaps, without being the same, the result of a queued
            operation, and one of the two is staged.
        """
        if not self._entries:
            return
        for buffer in buffers:
            for entry in self._entries:
                if any(_hides(target, buffer) for target in entry.targets):
                    raise ValueError(
                        f"a tensor shares memory with a result of {entry.label}, "
                        "which is still queued, and one of the two has to be "
                        f"copied: wait for {entry.label} first"
                    )

    def add(self, work: SharedWork, targets: Sequence[Buffer], label: str) -> Entry:
        """Note an operation that was queued just now; `lock` is held."""
        entry = Entry(work, targets, label)
        self._entries.append(entry)
        return entry

    def bring(self, entry: Entry) -> None:
        """Bring the results of an operation that has ended to their place.

        Raises:
          Exception: copying them back raised it.
        """
        self.settle()
        if entry.error is not None:
            raise entry.error

    def settle(self) -> None:
        """Copy back the results of all operations that have ended. Never blocks."""
        with self.lock:
            while self._entries and self._entries[0].work.done():
                _bring_back(self._entries[0])
                self._entries.popleft()  # after: an interrupted copy is made again


def _hides(target: Buffer, buffer: Buffer) -> bool:
    if not (target.staged or buffer.staged):
        return False  # both are used where they lie, one after the other
    return target.staged != buffer.staged and target.place.shares(buffer.place)


def _bring_back(entry: Entry) -> None:
    outcome = entry.work.wait(0.0)
    if outcome is None or outcome.status:
        return
    try:
        for target in entry.targets:
            if target.finish is not None:
                target.finish()
    except Exception as error:
        entry.error = error
