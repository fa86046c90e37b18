# SPDX-License-Identifier: MIT
"""Ends of a future, line by line: whatever the schedule, the first decides, and what
must happen before it is seen has happened."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from mooactor.process.objects import future as future_module
from mooactor.process.objects.future import Future
from tests.process.interleave import Schedule, Thread
from tests.process.test_interleavings import preempting, seeded

THREADS = 3


class Race:
    """Threads that end one future, each with an error and a step before it, while
    another looks at it."""

    def __init__(self, choose: Any) -> None:
        self.future = Future()
        self.told: list[int] = []  # whose steps have been done
        self.won: list[int] = []
        self.too_early: list[str] = []
        watched = [future_module, sys.modules[__name__]]
        self.schedule = Schedule(choose, watched, lambda: True)
        self.threads: list[Thread] = [
            self.schedule.add(f"ends{n}", lambda n=n: self.end(n))
            for n in range(THREADS)
        ]
        self.threads.append(self.schedule.add("looks", self.look))

    def end(self, number: int) -> None:
        def tell(future: Future) -> None:
            assert future is self.future
            self.told.append(number)

        if self.future.set_error(ValueError(number), tell):
            self.won.append(number)
        self.check(f"ends{number}")

    def look(self) -> None:
        while not self.future.state:
            pass
        self.check("looks")

    def check(self, who: str) -> None:
        """The end is seen here."""
        failure = self.future.failure()
        assert failure is not None
        if failure.args[0] not in self.told:
            self.too_early.append(who)

    def run(self) -> None:
        self.schedule.run([])
        assert [thread.error for thread in self.threads] == [None] * len(self.threads)
        assert self.too_early == []
        failure = self.future.failure()
        assert failure is not None
        assert self.won == list(failure.args)
        assert set(self.told) == set(self.won)


def test_of_several_ends_one_is_seen_and_only_after_its_step() -> None:
    for seed in range(150):
        Race(seeded(seed)).run()


@pytest.mark.slow
def test_a_change_of_threads_at_any_line_changes_nothing_of_that() -> None:
    for at in range(1, 60):
        for to in range(1, THREADS):
            Race(preempting(at, to)).run()
