# SPDX-License-Identifier: MIT
"""A signal handler that raises while the program reads, calls or puts: nothing hangs,
what is read is right, and the next attempt gives it."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from tests.actors.counter import Counter
from tests.actors.keeper import Keeper, number_in, value
from tests.conftest import running_session

#: Signals for each operation. Some strike before it is over.
SIGNALS = 40

# A signal in a finalizer is lost to the program, as Python has it.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    """One of its own: what an interrupted call has lent may stay until its end."""
    with running_session() as running:
        yield running


class Alarm(Exception):
    """The handler's exception."""


def delays(seed: object) -> Iterator[float]:
    """In seconds: from a few bytecodes on to longer than any of these takes."""
    dice = random.Random(str(seed))
    for _ in range(SIGNALS):
        yield 10 ** dice.uniform(-5, -2)


def interrupted(run: Callable[[], object], delay_s: float) -> bool:
    """Run it; the handler raises after so many seconds, if it is not over by then."""
    armed = [True]

    def ring(*_: object) -> None:
        if armed:
            armed.clear()
            raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, delay_s)
        run()
        armed.clear()
        return False
    except Alarm:
        return True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def first_of(keeper: Any) -> Callable[[], int]:
    """The number of the first item, and of those behind it, from a stream."""
    stream = keeper.items.options(stream_window=1)(3)
    return lambda: numbers_of(stream)


def numbers_of(items: Iterator[Any]) -> int:
    """7, if the rest of the items is there, in order."""
    rest = [number_in(item[0].get()) for item in items]
    # It may strike in the program, which then has the first ones in its hands.
    assert rest == [0, 1, 2][3 - len(rest) :]
    return 7


def a_result(keeper: Any) -> Callable[[], int]:
    ref = keeper.make.remote(7)
    return lambda: number_in(ref.get())


READS = [a_result, first_of]


@pytest.mark.parametrize("begin", READS, ids=lambda begin: begin.__name__)
def test_a_read_that_is_interrupted_can_be_repeated(
    spawn: Any, begin: Callable[[Any], Callable[[], int]]
) -> None:
    actor, done = spawn(Keeper), 0
    for delay_s in delays(begin.__name__):
        read = begin(actor)
        done += interrupted(read, delay_s)
        assert read() == 7
    assert done > SIGNALS // 10


def test_calls_and_puts_that_are_interrupted_spoil_none_that_follow(group: Any) -> None:
    members = group(Keeper, 2)
    ways: list[Callable[[Any], object]] = [
        lambda data: members[0].read_now([moo.put(data)]),
        lambda data: members[0].ignore.options(retries=1).remote(data, data),
        lambda data: members[0].ignore.tell(data),
        lambda data: members.call(Keeper.ignore, data),
    ]
    for way in ways:
        for number, delay_s in enumerate(delays(ways.index(way))):
            interrupted(lambda way=way, number=number: way(value(number)), delay_s)
            for member in members:
                assert member.read_now([moo.put(value(number))]) == number
    assert moo.stats()["calls_pending"] == 0


class Interrupts:
    """Pickling it is interrupted."""

    def __reduce__(self) -> Any:
        signal.raise_signal(signal.SIGALRM)
        return (Interrupts, ())


def test_a_handlers_exception_is_not_taken_for_one_of_pickling(session: Any) -> None:
    for use in (moo.put, lambda value: moo.spawn(Counter, value)):
        assert interrupted(lambda use=use: use(Interrupts()), 60.0)
    assert np.array_equal(moo.put(value(3)).get(), value(3))
