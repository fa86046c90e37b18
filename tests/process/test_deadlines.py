# SPDX-License-Identifier: MIT
"""Each deadline ends its call, with a clock that goes on when all work is done."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mooactor.process.housekeeper import Deadlines
from mooactor.process.objects.future import Future


class Call(Future):
    """One that notes when it ended by its deadline."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock, self.ended_at = clock, 0.0

    def expire(self) -> None:
        self.ended_at = self.clock.now
        self.set_error(TimeoutError())


class Mute(Call):
    """Its callee cannot be told that it has ended."""

    def expire(self) -> None:
        super().expire()
        raise MemoryError


class Clock:
    """A housekeeper, and the calls of its process."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[tuple[float, int, Callable[[], None]]] = []
        self.said = 0
        self.calls: dict[int, Call] = {}
        time: Any = SimpleNamespace(now=lambda: self.now)
        self.deadlines = Deadlines(self.calls, self, time)  # type: ignore[arg-type]

    def at(self, when: float, action: Callable[[], None]) -> None:
        self.said += 1
        heapq.heappush(self.due, (when, self.said, action))

    def start(self, deadline: float, kind: type[Call] = Call) -> None:
        call = self.calls[len(self.calls)] = kind(self)
        self.deadlines.limit(call, deadline)

    def run(self, until: float = 1000.0) -> None:
        while self.due and self.due[0][0] <= until:
            when, _, action = heapq.heappop(self.due)
            self.now = max(self.now, when)
            action()
        self.now = until

    def ended(self) -> list[float]:
        return [call.ended_at for call in self.calls.values()]


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_each_call_ends_at_its_own_deadline(clock: Clock) -> None:
    rng, expected = random.Random(1), list[float]()
    for _ in range(200):
        deadline = clock.now + rng.choice((0.0, 0.5, 1.0, 3.0))
        clock.start(deadline)
        expected.append(deadline)
        if rng.random() < 0.3:
            clock.run(clock.now + rng.random())
        if rng.random() < 0.1 and not clock.calls[len(expected) - 1].state:
            clock.calls[len(expected) - 1].set_value("in time")
            expected[-1] = 0.0
    clock.run()
    assert clock.ended() == pytest.approx(expected)
    assert len(clock.due) == 0


def test_a_call_that_cannot_be_told_costs_no_other_deadline(clock: Clock) -> None:
    for number, kind in enumerate([Call, Mute, Call]):
        clock.start(1.0 + number % 2, kind)
    with pytest.raises(MemoryError):
        clock.run()
    clock.run()
    assert all(clock.ended())
