# SPDX-License-Identifier: MIT
"""Waiting for calls from threads and callbacks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

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
