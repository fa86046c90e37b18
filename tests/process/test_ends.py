# SPDX-License-Identifier: MIT
"""Ends of a future, line by line: whatever the schedule, the first decides, and what
must happen before it is seen has happened. And deadlines: each ends its call."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable
from typing import Any

import pytest

from mooactor.control.clock import Clock
from mooactor.process import deadlines as deadlines_module
from mooactor.process.deadlines import Deadlines
from mooactor.process.objects import future as future_module
from mooactor.process.objects.future import Future
from tests.process.interleave import Interrupt, Schedule, Thread
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


@pytest.mark.slow
def test_of_several_ends_one_is_seen_and_only_after_its_step() -> None:
    for seed in range(150):
        Race(seeded(seed)).run()


@pytest.mark.slow
def test_a_change_of_threads_at_any_line_changes_nothing_of_that() -> None:
    for at in range(1, 60):
        for to in range(1, THREADS):
            Race(preempting(at, to)).run()


def test_a_step_that_a_signal_cut_short_is_done_by_the_next_end() -> None:
    future, told = Future(), []

    def interrupted(future: Future) -> None:
        told.append("begun")
        if len(told) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        future.set_error(ValueError("first"), interrupted)
    assert not future.state and future.is_decided()
    assert future.set_value("later") is False
    assert told == ["begun", "begun"]
    assert repr(future.failure()) == repr(ValueError("first"))


def test_a_step_that_fails_of_itself_ends_it_all_the_same() -> None:
    future = Future()

    def fails(future: Future) -> None:
        raise MemoryError("no room to tell")

    with pytest.raises(MemoryError):
        future.set_error(ValueError("first"), fails)
    assert repr(future.failure()) == repr(ValueError("first"))


# -- deadlines -----------------------------------------------------------------


class Keeper:
    """A housekeeper whose clock goes on when all its work is done."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[tuple[float, int, Callable[[], None]]] = []
        self.said = 0

    def at(self, when: float, action: Callable[[], None]) -> None:
        self.said += 1
        heapq.heappush(self.due, (when, self.said, action))

    def act(self) -> None:
        when, _, action = heapq.heappop(self.due)
        self.now = max(self.now, when)
        action()


class Call(Future):
    """It ends with its deadline, if it has one."""

    def expire(self) -> None:
        self.set_error(TimeoutError())


class Clocked:
    """Threads that start calls with deadlines while the housekeeper ends them."""

    def __init__(self, choose: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keeper, self.pending = Keeper(), dict[int, Future]()
        clock = Clock()
        monkeypatch.setattr(clock, "now", lambda: self.keeper.now)
        self.deadlines = Deadlines(self.pending, self.keeper, clock)  # type: ignore[arg-type]
        watched = [deadlines_module, sys.modules[__name__]]
        self.schedule = Schedule(choose, watched, lambda: True)

    def start(self, number: int, deadline: float) -> None:
        call = self.pending[number] = Call()
        self.deadlines.limit(call, deadline)

    def caller(self, first: int, *deadlines: float) -> Thread:
        def run() -> None:
            for number, deadline in enumerate(deadlines, first):
                self.start(number, deadline)

        return self.schedule.add(f"calls{first}", run)

    def keeps(self) -> Thread:
        def run() -> None:
            for _ in range(4):
                if self.keeper.due:
                    self.keeper.act()

        return self.schedule.add("keeps", run)

    def all_end(self) -> bool:
        while self.keeper.due:
            self.keeper.act()
        return all(call.state for call in self.pending.values())


@pytest.mark.slow
def test_every_deadline_ends_its_call_in_any_schedule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seed in range(100):
        world = Clocked(seeded(seed), monkeypatch)
        threads = [world.caller(0, 3.0, 1.0, 4.0), world.caller(10, 2.0, 5.0)]
        threads.append(world.keeps())
        world.schedule.run([])
        assert [t.error for t in threads] == [None] * 3
        assert world.all_end(), f"seed {seed}"


@pytest.mark.parametrize("calls_in_between", [False, True])
def test_an_exception_at_any_line_costs_no_other_deadline(
    monkeypatch: pytest.MonkeyPatch, calls_in_between: bool
) -> None:
    interrupted = 0
    for line in range(1, 12):
        world = Clocked(lambda ready: ready[0], monkeypatch)
        thread = world.caller(0, 3.0)

        def handler(world: Clocked = world) -> None:
            if calls_in_between:
                world.start(1, 2.0)
            raise Interrupt

        thread.interrupt_at[line] = handler
        world.schedule.run([])
        interrupted += thread.error is not None
        if thread.error is not None:
            world.pending.pop(0, None)  # its caller forgets it: it has an error
        world.start(2, 4.0)
        assert world.all_end(), f"line {line}"
    assert interrupted > 4


def test_a_call_that_cannot_be_told_costs_no_other_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Mute(Call):
        def expire(self) -> None:
            super().expire()
            raise MemoryError

    world = Clocked(lambda ready: ready[0], monkeypatch)
    for number, kind in enumerate([Call, Mute, Call]):
        world.pending[number] = kind()
        world.deadlines.limit(world.pending[number], 1.0 + number % 2)
    with pytest.raises(MemoryError):
        world.all_end()
    assert world.all_end()
