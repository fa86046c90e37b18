# SPDX-License-Identifier: MIT
"""A signal handler that makes calls and waits for them, at any moment of the program.

Python runs it in the main thread, between any two steps of ours: perhaps amid the
arrival of what another call has brought.
"""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.actors.networks.peers import Peer
from tests.conftest import running_session

#: So often the handler has waited, at least, when a test ends.
ENOUGH = 300


@pytest.fixture(
    scope="module", params=["shm", pytest.param("tcp", marks=pytest.mark.slow)]
)
def session(request: pytest.FixtureRequest) -> Iterator[Any]:
    with running_session(transport=request.param) as running:
        yield running


class Alarms:
    """The handler. What it calls does not depend on what it interrupts."""

    def __init__(self, echo: Any, make: Any) -> None:
        self._calls = (echo, make)
        self._chance = random.Random(5)
        self._depth = 0
        self._over = False
        self.answered = 0

    def start(self) -> None:
        self._again()

    def stop(self) -> None:
        self._over = True

    def _again(self) -> None:
        seconds = 0.0002 + self._chance.random() * 0.003
        if not self._over:
            signal.setitimer(signal.ITIMER_REAL, seconds)

    def ring(self, *_: object) -> None:
        if self._over or self._depth > 2:
            return
        self._depth += 1
        self._again()  # so it may be interrupted by itself
        try:
            number = self.answered % 250
            echo, make = self._calls
            assert echo(number) == number
            assert np.all(make(100_000, number) == number)
            self.answered += 1
        finally:
            self._depth -= 1
            self._again()


@pytest.mark.timeout(120)
def test_it_gets_its_answers_and_spoils_none(spawn: Callable[..., Any]) -> None:
    busy, other = spawn(Peer), spawn(Peer)
    alarms = Alarms(other.echo, other.make)
    over, wrong = threading.Event(), list[Any]()

    def beside() -> None:
        """Another thread takes the lead whenever it can."""
        number = 0
        while not over.is_set():
            number = (number + 1) % 250
            if not np.all(other.make(80_000, number) == number):
                wrong.append(number)

    thread = threading.Thread(target=beside)
    before = signal.signal(signal.SIGALRM, alarms.ring)
    thread.start()
    try:
        alarms.start()
        number = 0
        while alarms.answered < ENOUGH:
            number = (number + 1) % 250
            refs = [busy.make.remote(size, number) for size in (10, 70_000, 300_000)]
            for ref in refs:
                assert np.all(ref.get() == number)
            assert busy.take(np.full(90_000, number, np.uint8)) == number
            firsts = [int(item[0]) for item in busy.items(4, 70_000)]
            assert firsts == [1, 1, 1, 1]
    finally:
        alarms.stop()
        over.set()
        thread.join()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not wrong
