# SPDX-License-Identifier: MIT
"""`Crew`: the learners of a run, of which some may be on their way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import mooactor as moo
from impala.progress import LearnerReport
from mooactor.rl import State


class AllLearnersLost(RuntimeError):
    """No learner is left that has the weights."""

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.version = version

    def __str__(self) -> str:
        return (
            f"all learners with the weights of update {self.version} are lost; "
            "--resume goes on from the last checkpoint"
        )


class Learns(Protocol):
    """A handle of a learner."""

    def train(self, since: int, until: int, /) -> LearnerReport:
        """Learn with the others up to version ``until``, at once if they are beyond it.

        Raises:
          AllLearnersLost: they are not at ``since`` yet: those that were are gone.
        """

    def state(self) -> State:
        """The state for a checkpoint, with its ``version``."""


class Crew:
    """Learners that make a number of updates together, and then stand still.

    They are actors with a restart policy. A learner that dies is started again, and
    gets its state from the others while these go on: its call takes as long as that,
    and nobody waits for it. So it is for each learner when the run begins.

    Attributes:
      version: the updates that all of them have made.
    """

    def __init__(self, learners: Sequence[Learns], version: int = 0) -> None:
        self._learners = dict(enumerate(learners))
        self._calls: dict[int, moo.Ref[LearnerReport]] = {}
        self._present: list[int] = []
        self.version = self._until = version

    def add(self, learner: Learns) -> None:
        """Have one more, which gets its state as those that are started again do."""
        self._learners[max(self._learners) + 1] = learner

    def train(self, updates: int) -> None:
        """Have them make so many updates; `reports` waits for that."""
        self._until = self.version + updates
        self._call(self._learners)

    def _call(self, indices: Iterable[int]) -> None:
        for index in set(indices) - self._calls.keys():
            learner = self._learners[index]
            self._calls[index] = moo.submit(learner.train, self.version, self._until)

    def reports(self) -> list[LearnerReport]:
        """The reports of all that took part, one of the newest version first.

        Raises:
          AllLearnersLost: see there.
          ActorDied: no learner is left, and the last one is not started again.
        """
        here: dict[int, LearnerReport] = {}
        late: list[LearnerReport] = []  # of those that came in as the others stopped
        lost = 0

        def is_done() -> bool:
            """Nobody waits for members that get their state: they need the others."""
            if any(report.heals for report in here.values()):
                return True
            learners = max((r.learners for r in here.values()), default=0)
            return 0 < learners <= len(here) + lost

        while not is_done():
            moo.wait(list(self._calls.values()), fetch=True)
            for index in [i for i, call in self._calls.items() if call.done()]:
                try:
                    report = self._calls.pop(index).get()
                except moo.ActorRestarted:
                    lost += 1
                except moo.ActorDied:
                    lost += 1
                    del self._learners[index]
                    if not self._learners:
                        raise
                else:
                    if report.version == self._until:
                        here[index] = report
                    else:
                        late.append(report)
            self._call(self._learners.keys() - here.keys())
        self.version, self._present = self._until, list(here)
        return [*here.values(), *late]

    def state(self) -> State:
        """The state of one that has made all updates.

        Raises:
          AllLearnersLost: these died since.
        """
        for index in self._present:
            try:
                state = self._learners[index].state()
            except moo.ActorDied:
                continue
            if state["version"] == self.version:  # it was not started again
                return state
        raise AllLearnersLost(self.version)
