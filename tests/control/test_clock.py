# SPDX-License-Identifier: MIT
"""Timers over one clock, and the clock that a test advances."""

from __future__ import annotations

import random
import threading

import pytest

from mooactor.control.clock import Timer
from mooactor.testing import VirtualClock


def test_what_is_due_is_done_in_order_and_once() -> None:
    clock, rng, done = VirtualClock(100.0), random.Random(1), list[float]()
    timers = [clock.timers() for _ in range(3)]
    times = [rng.choice((1.0, 2.0, 3.0, 3.5)) for _ in range(50)]
    for after in times:
        rng.choice(timers).after(after, lambda after=after: done.append(after))
    clock.advance(3.25)
    assert done == sorted(after for after in times if after < 3.5)
    assert clock.now() == 103.25
    clock.advance(3.25)
    assert done == sorted(times) and not any(timers)


def test_each_action_sees_the_time_at_which_it_was_due_and_may_add_another() -> None:
    clock, seen = VirtualClock(), list[float]()
    timers = clock.timers()

    def beat() -> None:
        seen.append(clock.now())
        timers.after(1.0, beat)

    beat()
    clock.advance(3.5)
    assert seen == [0.0, 1.0, 2.0, 3.0] and timers.due() == 4.0


def test_what_was_cancelled_is_not_done_and_not_waited_for() -> None:
    clock, done = VirtualClock(), list[str]()
    timers = clock.timers()
    first = timers.at(1.0, lambda: done.append("first"))
    timers.at(2.0, lambda: done.append("second"))
    first.cancel()
    assert timers.due() == 2.0
    clock.advance(5.0)
    first.cancel()
    assert done == ["second"] and timers.due() is None


def test_an_action_may_cancel_one_that_is_due_with_it() -> None:
    clock, made = VirtualClock(), list[Timer]()
    timers = clock.timers()
    timers.at(1.0, lambda: made[0].cancel())
    made.append(timers.at(1.0, lambda: pytest.fail("it was cancelled")))
    clock.advance(1.0)
    assert len(timers) == 0


def test_an_exception_costs_the_other_actions_nothing() -> None:
    clock, done = VirtualClock(), list[int]()
    timers = clock.timers()
    timers.at(1.0, lambda: 1 // 0)
    timers.at(1.0, lambda: done.append(1))
    with pytest.raises(ZeroDivisionError):
        clock.advance(2.0)
    clock.advance(1.0)
    assert done == [1]


def test_what_an_action_adds_for_the_same_round_waits_for_the_next() -> None:
    """So an event loop gets to its descriptors between any two."""
    clock, done = VirtualClock(), list[int]()
    timers = clock.timers()
    timers.at(0.0, lambda: timers.after(1e-6, lambda: done.append(1)))
    timers.run_due()
    assert done == [] and timers.due() == 1e-6


def test_threads_that_add_and_cancel_lose_nothing() -> None:
    clock, done = VirtualClock(), list[int]()
    timers = clock.timers()

    def add(thread: int) -> None:
        for number in range(2000):
            timer = timers.at(number % 7, lambda n=number: done.append(n))
            if number % 2:
                timer.cancel()
            timers.due() if thread == 0 else None

    threads = [threading.Thread(target=add, args=[i]) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    clock.advance(7.0)
    assert sorted(done) == sorted(4 * list(range(0, 2000, 2)))
