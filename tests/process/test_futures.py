# SPDX-License-Identifier: MIT
"""Futures that several threads use at the same moment, line by line."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mooactor.process.objects import future as future_module
from mooactor.process.objects.future import Future
from tests.process.interleave import Lock, Schedule
from tests.process.test_interleavings import preempting

Parts = dict[str, Callable[[], object]]


@pytest.fixture
def in_any_order(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Callable[[], tuple[Parts, Callable[[], object]]]], None]:
    """Run two parts of something in a thread each, with every schedule that changes
    once from the one to the other, at some line; the last function checks it."""

    def run(
        begin: Callable[[], tuple[Parts, Callable[[], object]]], at: int, first: int
    ) -> int:
        parts, check = begin()
        schedule = Schedule(preempting(at, 1), [future_module], lambda: True)
        locks = SimpleNamespace(RLock=lambda: Lock(schedule))
        monkeypatch.setattr(future_module, "threading", locks)
        names = sorted(parts, reverse=bool(first))
        threads = [schedule.add(name, parts[name]) for name in names]
        schedule.run([])
        assert [one.error for one in threads] == [None] * len(threads)
        assert check(), schedule.history
        return len(schedule.history)

    def run_all(begin: Callable[[], tuple[Parts, Callable[[], object]]]) -> None:
        for first in (0, 1):
            steps = at = 1
            while at <= steps:
                steps, at = run(begin, at, first), at + 1

    return run_all


def test_the_first_two_listeners_are_both_told(in_any_order: Any) -> None:
    def begin() -> Any:
        future, told = Future(), list[str]()
        parts = {
            "one": lambda: future.listen(lambda: told.append("one")),
            "other": lambda: future.listen(lambda: told.append("other")),
        }
        return parts, lambda: future.set_value(3) and set(told) == {*parts}

    in_any_order(begin)


def test_a_listener_is_told_of_an_end_that_comes_at_the_same_moment(
    in_any_order: Any,
) -> None:
    def begin() -> Any:
        future, told = Future(), list[str]()
        parts = {
            "listener": lambda: future.listen(lambda: told.append("listener")),
            "end": lambda: future.set_value(3),
        }
        return parts, lambda: told and future.unwrap() == 3

    in_any_order(begin)


def test_a_result_that_two_threads_read_at_once_is_one_object(
    in_any_order: Any,
) -> None:
    class Raw:
        def value(self) -> object:
            return object()

    def begin() -> Any:
        future, got = Future(), list[object]()
        future.set_raw(Raw())
        parts = dict.fromkeys(("one", "other"), lambda: got.append(future.unwrap()))
        return parts, lambda: got[0] is got[1]

    in_any_order(begin)
