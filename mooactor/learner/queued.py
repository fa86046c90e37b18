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

A signal handler may come between any two steps here. It may queue operations and wait
for them, and it may raise. So an operation and its way back are one entry, which stays
until all of its results are in their places: a copy that was cut short is made again by
the next one who waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mooactor.control.complaints import was_interrupted
from mooactor.learner.buffers import Buffer
from mooactor.learner.calls import Pair
from mooactor.learner.places import Place
from mooactor.tensors.collective import SharedGroup, SharedWork


class Entry(SharedWork):
    """One operation and its results' places."""

    __slots__ = ("pairs", "label", "error", "_copies", "_settled")

    def __init__(self, pairs: list[Pair], label: str) -> None:
        super().__init__()
        self.pairs, self.label = pairs, label
        self.error: Exception | None = None  # of copying back
        self._copies = [to.finish for _, to in pairs if to.finish is not None]
        self._settled = False

    @property
    def stages(self) -> bool:
        """Whether a copy stands for one of its results until it has ended."""
        return bool(self._copies)

    def settle(self) -> None:
        """Copy its results back; an error of that is kept for whoever waits for it."""
        outcome = self.wait(0.0) if self._copies else None
        if outcome is not None and not outcome.status:
            try:
                self._bring_back()
            except Exception as error:
                if was_interrupted(error):
                    raise  # it was not the copy's
                self.error = error
        self._settled = True

    def _bring_back(self) -> None:
        for copy in self._copies:
            if self._settled:
                return  # by a signal handler; the program may use the tensors now
            copy()


class Queued:
    """The operations that a member has queued."""

    __slots__ = ("member",)

    def __init__(self, member: SharedGroup) -> None:
        self.member = member

    def _entries(self) -> list[Entry]:
        return [work for work in self.member.works[:] if isinstance(work, Entry)]

    def staged(self, place: Place) -> Any:
        """The present copy of exactly this tensor, or None."""
        for entry in reversed(self._entries()):
            for _, target in entry.pairs:
                if target.staged == place:
                    return target.holder
        return None

    def refuse_overlaps(self, buffers: Iterable[Buffer]) -> None:
        """Refuse an operation on memory whose value is in a copy elsewhere.

        Raises:
          ValueError: a tensor overlaps, without being the same, the result of a queued
            operation, and one of the two is staged.
        """
        if not self.member.works:
            return
        entries = self._entries()
        for buffer in buffers:
            for entry in entries:
                if (buffer.staged or entry.stages) and any(
                    _hides(target, buffer) for _, target in entry.pairs
                ):
                    raise ValueError(
                        f"a tensor shares memory with a result of {entry.label}, "
                        "which is still queued, and one of the two has to be "
                        f"copied: wait for {entry.label} first"
                    )

    def start(self) -> None:
        """See `SharedGroup.start`."""
        self.member.start()

    def bring(self, entry: Entry) -> None:
        """Bring the results of an operation that has ended to their place.

        Raises:
          Exception: copying them back raised it.
        """
        self.member.settle(entry)
        if entry.error is not None:
            raise entry.error


def _hides(target: Buffer, buffer: Buffer) -> bool:
    if not (target.staged or buffer.staged):
        return False  # both are used where they lie, one after the other
    return target.staged != buffer.staged and target.place.shares(buffer.place)
