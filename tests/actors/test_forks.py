# SPDX-License-Identifier: MIT
"""A forked child keeps what it could see, whatever its parent does meanwhile."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from tests.actors.keeper import holdings
from tests.conftest import eventually

SIZE = 1 << 20
ROUNDS = 30


class Child:
    """A forked child that tells what it sees when it is asked."""

    def __init__(self, look: Callable[[], bytes]) -> None:
        asked, self._ask = os.pipe()
        self._answer, answers = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # there are threads
            self.pid = os.fork()
        if self.pid == 0:
            try:
                while os.read(asked, 1) == b"?":
                    os.write(answers, look())
            finally:
                os._exit(0)
        os.close(asked)
        os.close(answers)

    def sees(self) -> bytes:
        os.write(self._ask, b"?")
        return os.read(self._answer, 16)

    def end(self, number: int = signal.SIGTERM) -> None:
        os.kill(self.pid, number)
        os.waitpid(self.pid, 0)
        os.close(self._ask)
        os.close(self._answer)


def looking_at(*arrays: Any) -> Callable[[], bytes]:
    return lambda: b"".join(map(values_in, arrays))


def values_in(array: Any) -> bytes:
    """Each value in an array, once."""
    return bytes(np.unique(array))


@moo.actor
class Forks:
    """Receives arrays, and forks."""

    def __init__(self) -> None:
        self.kept: Any = None
        self.child: Child | None = None

    def keep(self, array: Any) -> None:
        self.kept = array

    def fork(self) -> None:
        self.child = Child(looking_at(self.kept))

    def drop(self) -> None:
        self.kept = None

    def make(self, number: int) -> Any:
        return np.full(SIZE, number, np.uint8)

    def child_sees(self) -> bytes:
        assert self.child is not None
        return self.child.sees()

    def end_child(self) -> None:
        assert self.child is not None
        self.child.end()

    def used(self) -> int:
        return int(moo.stats()["memory"]["used_bytes"])

    def kept_for_forks(self) -> int:
        return int(moo.stats()["memory"]["kept_for_forks_bytes"])


@pytest.fixture
def actor(spawn: Any) -> Any:
    return spawn(Forks)


@pytest.fixture
def child(request: pytest.FixtureRequest) -> Iterator[Callable[..., Child]]:
    """Fork this process; the children are gone when the test is over."""
    children: list[Child] = []

    def fork(*arrays: Any) -> Child:
        children.append(Child(looking_at(*arrays)))
        return children[-1]

    yield fork
    for each in children:
        each.end()


def test_what_a_child_of_an_actor_sees_stays(actor: Any) -> None:
    actor.keep(np.full(SIZE, 7, np.uint8))
    actor.fork()
    actor.drop()
    for _ in range(ROUNDS):
        actor.keep(np.full(SIZE, 99, np.uint8))
        actor.drop()
        assert actor.child_sees() == b"\x07"
    assert actor.kept_for_forks() == SIZE
    actor.end_child()
    assert eventually(lambda: holdings()["used"] == 0)


def test_what_a_child_of_the_driver_sees_stays(
    actor: Any, child: Callable[..., Child]
) -> None:
    received = actor.make(7)
    reader = child(received)
    del received
    for _ in range(ROUNDS):
        assert values_in(actor.make(99)) == b"c"
        assert reader.sees() == b"\x07"
    assert actor.used() == SIZE
    os.kill(reader.pid, signal.SIGKILL)  # however it ends
    assert eventually(lambda: actor.used() == 0)


def test_what_the_driver_made_itself_stays_for_its_child(
    actor: Any, child: Callable[..., Child]
) -> None:
    made = moo.empty(SIZE, "uint8")
    made[:] = 7
    actor.keep(made)
    actor.drop()
    stored = moo.put(np.full(SIZE, 8, np.uint8))
    view = stored.get()
    reader = child(made, view)
    made[:] = 9  # a write here is this process's own
    del made, stored, view
    for _ in range(ROUNDS):
        actor.keep(np.full(SIZE, 99, np.uint8))
        actor.drop()
        assert reader.sees() == b"\x07\x08"
    os.kill(reader.pid, signal.SIGKILL)
    assert eventually(lambda: holdings()["used"] == 0)
