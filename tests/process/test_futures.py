# SPDX-License-Identifier: MIT
"""A future that several threads use at the same moment, line by line: the first end
decides, what must happen before it is seen has happened, and all listeners are told."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from mooactor.process.objects import future as future_module
from mooactor.process.objects.future import Future
from tests.process.interleave import Lock, Schedule, seeded


class Race:
    """Threads that end one future, each with an error and a step before it; one that
    looks at it; and two that listen."""

    def __init__(self, choose: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        watched = [future_module, sys.modules[__name__]]
        schedule = self.schedule = Schedule(choose, watched, lambda: True)
        locks = SimpleNamespace(RLock=lambda: Lock(schedule))
        monkeypatch.setattr(future_module, "threading", locks)
        self.future = Future()
        self.told: list[int] = []  # whose steps have been done
        self.won: list[int] = []
        self.heard: set[str] = set()
        self.too_early: list[str] = []
        self.threads = [
            schedule.add(f"ends{n}", lambda n=n: self.end(n)) for n in (1, 2)
        ]
        self.threads.append(schedule.add("looks", self.look))
        self.threads += [schedule.add(n, lambda n=n: self.listen(n)) for n in "ab"]

    def end(self, number: int) -> None:
        if self.future.set_error(
            ValueError(number), lambda _: self.told.append(number)
        ):
            self.won.append(number)
        self.check(f"ends{number}")

    def look(self) -> None:
        while not self.future.state:
            pass
        self.check("looks")

    def listen(self, name: str) -> None:
        self.future.listen(lambda: self.heard.add(name))

    def check(self, who: str) -> None:
        """The end is seen here."""
        failure = self.future.failure()
        assert failure is not None
        if failure.args[0] not in self.told:
            self.too_early.append(who)

    def run(self) -> None:
        self.schedule.run([])
        assert [thread.error for thread in self.threads] == [None] * 5
        assert self.too_early == []
        failure = self.future.failure()
        assert failure is not None
        assert self.won == list(failure.args)
        assert set(self.told) == set(self.won)
        assert self.heard == {"a", "b"}


def test_of_several_ends_one_is_seen_after_its_step_and_every_listener_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seed in range(40):
        Race(seeded(seed), monkeypatch).run()


def test_a_step_that_fails_of_itself_ends_it_all_the_same() -> None:
    future = Future()

    def fails(future: Future) -> None:
        raise MemoryError("no room to tell")

    with pytest.raises(MemoryError):
        future.set_error(ValueError("first"), fails)
    assert repr(future.failure()) == repr(ValueError("first"))
