# SPDX-License-Identifier: MIT
"""A spawn that a signal handler cuts short leaves no actor, and takes no name."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import mooactor as moo
from tests.actors.counter import Counter
from tests.conftest import eventually
from tests.interruptions import Interruption, points
from tests.marks import slow


def one() -> Any:
    return moo.on(Counter, name="one").spawn()


def some() -> Any:
    return moo.on(Counter, name="some").group(2)


def placed() -> Any:
    return moo.on(Counter, num_cpus=0.25).group(2)


@pytest.mark.parametrize("step", [17, slow(5)])  # at one of so many points
@pytest.mark.parametrize("start", [one, some, placed], ids=lambda f: f.__name__)
def test_a_spawn_that_is_interrupted_leaves_nothing(
    session: Any, start: Callable[[], Any], step: int
) -> None:
    made: list[Any] = []
    done = 0
    for point in points(step):
        if point.interrupt(lambda: made.append(start())):
            done += 1
        else:
            for actor in moo.actors():
                moo.kill(actor.handle)
        assert eventually(lambda: not moo.actors()), point.where
    assert done > 3


class Interrupts:
    """Pickling it is interrupted."""

    def __reduce__(self) -> Any:
        signal.raise_signal(signal.SIGUSR2)
        return (Interrupts, ())


@pytest.fixture
def raising() -> Iterator[None]:
    def handle(number: int, frame: Any) -> None:
        raise Interruption

    before = signal.signal(signal.SIGUSR2, handle)
    yield
    signal.signal(signal.SIGUSR2, before)


@pytest.mark.parametrize(
    "use", [moo.put, lambda value: moo.spawn(Counter, value)], ids=["put", "spawn"]
)
def test_a_handlers_exception_is_not_taken_for_one_of_pickling(
    session: Any, raising: None, use: Callable[[Any], Any]
) -> None:
    with pytest.raises(Interruption):
        use(Interrupts())
