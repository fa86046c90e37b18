# SPDX-License-Identifier: MIT
"""Waiting for calls from threads, signal handlers and callbacks."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from tests.actors.counter import Counter
from tests.conftest import eventually

REPLY_S = 20  # far beyond what any of these calls takes


# -- threads ---------------------------------------------------------------


def test_threads_come_and_go_while_others_wait(spawn: Any, tmp_path: Path) -> None:
    actor, gate = spawn(Counter), tmp_path / "gate"
    rest = [spawn(Counter) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        waits = [pool.submit(a.until, gate) for a in rest]
        for _ in range(20):
            look = actor.echo.remote(1)
            while not look.done():  # which keeps nobody else waiting
                pass
            threads = [threading.Thread(target=actor.add) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(REPLY_S)
                assert not thread.is_alive()
        assert not any(wait.done() for wait in waits)
        gate.touch()
        assert [wait.result(REPLY_S) for wait in waits] == ["gate"] * 3
    assert actor.add(0) == 80


# -- signal handlers -------------------------------------------------------


@contextmanager
def alarms(handler: Callable[..., object], every_s: float) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, every_s, every_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@moo.actor
class Peer(Counter):
    def make(self, nbytes: int, value: int) -> Any:
        return np.full(nbytes, value, np.uint8)

    def first(self, data: Any) -> int:
        return int(data[0])

    def items(self, n: int, nbytes: int) -> Iterator[Any]:
        for i in range(n):
            yield np.full(nbytes, i, np.uint8)


class Handler:
    """Makes calls and waits for them, at any moment of the program: perhaps amid the
    arrival of what another call has brought."""

    def __init__(self, *actors: Any) -> None:
        self._actors = actors
        self._chance = random.Random(5)
        self._depth = 0
        self.over = False
        self.answered = 0

    def again(self) -> None:
        seconds = 0.0002 + self._chance.random() * 0.003
        if not self.over:
            signal.setitimer(signal.ITIMER_REAL, seconds)

    def ring(self, *_: object) -> None:
        if self.over or self._depth > 2:
            return
        self._depth += 1
        self.again()  # so it may be interrupted by itself
        try:
            number = self.answered % 250
            for actor in self._actors:
                assert actor.echo(number) == number
            assert np.all(self._actors[0].make(100_000, number) == number)
            self.answered += 1
        finally:
            self._depth -= 1
            self.again()


def test_a_signal_handler_that_waits_gets_its_answers_and_spoils_none(
    spawn: Any,
) -> None:
    busy, other = spawn(Peer), spawn(Peer)
    handler = Handler(other, busy)
    over, wrong = threading.Event(), list[Any]()

    def beside() -> None:
        """Another thread takes the lead whenever it can."""
        number = 0
        while not over.is_set():
            number = (number + 1) % 250
            if not np.all(other.make(80_000, number) == number):
                wrong.append(number)

    thread = threading.Thread(target=beside)
    thread.start()
    try:
        with alarms(handler.ring, 0.001):
            number = 0
            while handler.answered < 100:
                number = (number + 1) % 250
                refs = [busy.make.remote(size, number) for size in (10, 300_000)]
                for ref in refs:
                    assert np.all(ref.get() == number)
                assert busy.first(np.full(90_000, number, np.uint8)) == number
                firsts = [int(item[0]) for item in busy.items(4, 70_000)]
                assert firsts == [0, 1, 2, 3]
            handler.over = True
    finally:
        over.set()
        thread.join()
    assert not wrong


# -- callbacks -------------------------------------------------------------


def test_a_done_callback_may_wait_and_holds_up_nobody(
    spawn: Any, tmp_path: Path
) -> None:
    slow, quick, gate = spawn(Counter), spawn(Counter), tmp_path / "gate"
    waits, answers = threading.Event(), list[str]()

    def callback(done: Any) -> None:
        waits.set()
        answers.append(slow.until(gate))

    ref = quick.sleep.remote(0.01)
    ref.add_done_callback(callback)
    ref.get(REPLY_S)
    assert waits.wait(REPLY_S)
    assert quick.add() == 1
    assert not answers
    gate.touch()
    assert eventually(lambda: answers == ["gate"])


# -- deadlines ----------------------------------------------------


def test_everyone_who_looks_sees_a_deadline_pass(spawn: Any) -> None:
    counter, told = spawn(Counter), threading.Event()
    late = [counter.sleep.options(timeout=0.2).remote(600) for _ in range(4)]
    late[3].add_done_callback(lambda ref: told.set())
    assert moo.wait(late[:1], timeout=REPLY_S) == (late[:1], [])
    assert list(moo.as_completed(late[1:2], timeout=REPLY_S)) == late[1:2]
    assert eventually(late[2].done)
    assert told.wait(REPLY_S)
    for ref in late:
        assert isinstance(ref.exception(), moo.CallTimeout)


def test_a_stream_ends_with_its_deadline(spawn: Any) -> None:
    @moo.actor
    class Slow:
        def items(self) -> Iterator[int]:
            yield 1
            threading.Event().wait()

    for timeout in (0.5, 2.0, 8.0, 32.0):  # a busy machine may be late with the first
        got: list[int] = []
        with pytest.raises(moo.CallTimeout, match="deadline"):
            for item in spawn(Slow).items.options(timeout=timeout)():
                got.append(item)
        if got:
            break
    assert got == [1]
