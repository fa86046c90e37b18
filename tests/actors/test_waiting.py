# SPDX-License-Identifier: MIT
"""Waiting for calls from threads, signal handlers, finalizers and callbacks."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from tests.actors.counter import Counter
from tests.conftest import eventually

REPLY_S = 20  # far beyond what any of these calls takes


@pytest.mark.slow
def test_a_pool_of_threads_gets_all_its_replies(spawn: Any) -> None:
    actors = [spawn(Counter) for _ in range(4)]
    naps = (0.01, 0.01, 0.01, 0.04)
    with ThreadPoolExecutor(4) as pool:
        for _ in range(40):
            steps = [
                pool.submit(actor.sleep, nap)
                for actor, nap in zip(actors, naps, strict=True)
            ]
            assert [step.result(REPLY_S) for step in steps] == list(naps)


def test_looking_at_a_ref_keeps_nobody_else_waiting(spawn: Any) -> None:
    one, other = spawn(Counter), spawn(Counter)
    with ThreadPoolExecutor(1) as pool:
        for _ in range(30):
            waits = pool.submit(one.sleep, 0.005)
            ref = other.sleep.remote(0.002)
            while not ref.done():
                pass
            assert waits.result(REPLY_S) == 0.005


def test_threads_come_and_go_while_others_wait(spawn: Any) -> None:
    actor = spawn(Counter)
    rest = [spawn(Counter) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        waits = [pool.submit(a.sleep, 0.5) for a in rest]
        while not all(wait.done() for wait in waits):
            threads = [threading.Thread(target=actor.add) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(REPLY_S)
                assert not thread.is_alive()


# -- signal handlers ------------------------------------------------------------


@contextmanager
def alarms(handler: Callable[..., object], every_s: float) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, every_s, every_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_signal_handler_may_call_while_the_main_thread_waits(spawn: Any) -> None:
    waited_for, called = spawn(Counter), spawn(Counter)
    answers: list[int] = []
    with alarms(lambda *_: answers.append(called.add()), 0.01):
        assert waited_for.sleep(0.3) == 0.3
    assert sorted(answers) == list(range(1, len(answers) + 1))  # handlers may nest
    assert len(answers) >= 3


def test_a_signal_handler_may_call_the_very_actor_that_is_waited_for(
    spawn: Any,
) -> None:
    actor = spawn(Counter)
    answers: list[Any] = []
    with alarms(lambda *_: answers.append(actor.echo(1)), 0.02):
        for _ in range(300):
            actor.add()
            if len(answers) > 5:
                break
    assert set(answers) <= {1}


class Alarm(Exception):
    pass


armed: list[bool] = []


def ring(*_: object) -> None:
    if armed:  # once, so that it does not strike while the last one is handled
        armed.clear()
        raise Alarm


# What strikes in a finalizer is lost to the program, as Python has it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("every_s", [0.0007, 0.003])
def test_what_a_signal_handler_raises_costs_no_reply(
    spawn: Any, every_s: float
) -> None:
    actor = spawn(Counter)
    refs = [actor.echo.remote(n) for n in range(400)]
    raised = 0
    with alarms(ring, every_s):
        end = time.monotonic() + 30.0
        while time.monotonic() < end and (raised < 20 or not refs[-1].state):
            try:
                armed.append(True)
                moo.get(refs)
                refs += [actor.echo.remote(len(refs)) for _ in range(1)]
                armed.clear()  # it is not to strike outside
            except Alarm:
                raised += 1
            if len(refs) > 5000:
                break
    assert raised > 3
    assert moo.get(refs, timeout=REPLY_S) == list(range(len(refs)))


def test_what_a_signal_handler_raises_reaches_the_program(spawn: Any) -> None:
    actor = spawn(Counter)
    armed.append(True)
    with alarms(ring, 0.05), pytest.raises(Alarm):
        actor.sleep(0.5)
    assert actor.add() == 1


# -- finalizers and callbacks ---------------------------------------------------


class CallsWhenCollected:
    def __init__(self, handle: Any, answers: list[int]) -> None:
        self.handle, self.answers, self.me = handle, answers, self

    def __del__(self) -> None:
        self.answers.append(self.handle.add())


def test_a_finalizer_may_call_while_its_thread_waits(spawn: Any) -> None:
    waited_for, called = spawn(Counter), spawn(Counter)
    answers: list[int] = []
    threshold = gc.get_threshold()
    gc.set_threshold(20, 2, 2)  # collections strike everywhere
    try:
        for _ in range(50):
            for _ in range(3):
                CallsWhenCollected(called, answers)
            waited_for.echo([object() for _ in range(10)].__len__())
    finally:
        gc.set_threshold(*threshold)
    # While another thread collects, and waits in a finalizer, `collect` does nothing.
    assert eventually(lambda: (gc.collect(), len(answers) == 150)[1])
    assert sorted(answers) == list(range(1, 151))


def test_a_done_callback_may_call(spawn: Any) -> None:
    first, second = spawn(Counter), spawn(Counter)
    answers: list[int] = []
    ref = first.sleep.remote(0.05)
    ref.add_done_callback(lambda done: answers.append(second.add(5)))
    assert ref.get(REPLY_S) == 0.05
    assert eventually(lambda: answers == [5])


def test_a_callback_that_waits_holds_up_nobody(spawn: Any, tmp_path: Path) -> None:
    slow, quick, gate = spawn(Counter), spawn(Counter), tmp_path / "gate"
    waits, over = threading.Event(), threading.Event()

    def callback(done: Any) -> None:
        waits.set()
        slow.until(gate)
        over.set()

    ref = quick.sleep.remote(0.01)
    ref.add_done_callback(callback)
    ref.get(REPLY_S)
    assert waits.wait(REPLY_S)
    assert quick.add() == 1
    assert not over.is_set()
    gate.touch()
    assert over.wait(REPLY_S)


def test_calls_that_are_sent_again_need_no_room(spawn: Any) -> None:
    @moo.actor(max_pending=4)
    class Small:
        def nap(self, seconds: float) -> float:
            time.sleep(seconds)
            return seconds

        def pid(self) -> int:
            return os.getpid()

    small = spawn(moo.on(Small, restart=moo.Restart(max=2)))
    bystander = spawn(Counter)
    pid = small.pid()
    refs = [small.nap.options(retries=1).remote(0.2) for _ in range(4)]
    os.kill(pid, signal.SIGKILL)
    assert bystander.add() == 1
    assert moo.get(refs, timeout=REPLY_S) == [0.2] * 4


# -- deadlines ------------------------------------------------------------------


def late(spawn: Any) -> Any:
    """A call that does not end within its deadline."""
    return spawn(Counter).sleep.options(timeout=0.2).remote(600)


def test_wait_sees_a_deadline_pass(spawn: Any) -> None:
    ref = late(spawn)
    assert moo.wait([ref], timeout=REPLY_S) == ([ref], [])
    with pytest.raises(moo.CallTimeout):
        ref.get()


def test_as_completed_sees_a_deadline_pass(spawn: Any) -> None:
    ref = late(spawn)
    assert list(moo.as_completed([ref], timeout=REPLY_S)) == [ref]


def test_looking_sees_a_deadline_pass(spawn: Any) -> None:
    ref = late(spawn)
    assert eventually(ref.done)
    assert isinstance(ref.exception(), moo.CallTimeout)


def test_a_callback_is_told_of_a_deadline(spawn: Any) -> None:
    told = threading.Event()
    late(spawn).add_done_callback(lambda ref: told.set())
    assert told.wait(REPLY_S)


@pytest.mark.slow
def test_a_group_call_ends_with_the_deadlines_of_its_members(group: Any) -> None:
    @moo.actor
    class Sleeper:
        def up(self) -> None: ...

        @moo.method(timeout=3)
        def sleep(self, seconds: float) -> float:
            time.sleep(seconds)
            return seconds

    members = group(Sleeper, 2)
    members.call(Sleeper.up).get()
    ref = members.call_each(Sleeper.sleep, [(0.0,), (60.0,)])
    start = time.monotonic()
    values = ref.get(return_exceptions=True)
    assert values[0] == 0.0
    assert isinstance(values[1], moo.CallTimeout)
    assert time.monotonic() - start < 30


def test_a_stream_ends_with_its_deadline(spawn: Any) -> None:
    @moo.actor
    class Slow:
        def items(self) -> Iterator[int]:
            yield 1
            time.sleep(600)

    for timeout in (0.5, 2.0, 8.0, 32.0):  # a busy machine may be late with the first
        got: list[int] = []
        with pytest.raises(moo.CallTimeout, match="deadline"):
            for item in spawn(Slow).items.options(timeout=timeout)():
                got.append(item)
        if got:
            break
    assert got == [1]


# -- a started call never fails because of the callee ----------------------------


def test_starting_a_call_to_a_dead_actor_raises_nothing(spawn: Any) -> None:
    actor = spawn(Counter)
    actor.add()
    moo.kill(actor)
    for _ in range(3):
        ref = actor.add.remote()
        with pytest.raises(moo.ActorDied) as caught:
            ref.get(REPLY_S)
        assert caught.value.delivered is False


def test_a_group_call_reaches_all_members_though_one_is_dead(group: Any) -> None:
    members = group(Counter, 4)
    members.call(Counter.add).get()
    moo.kill(members[1])
    values = members.call(Counter.add, 2).get(return_exceptions=True)
    assert [values[0], values[2], values[3]] == [3, 3, 3]
    assert isinstance(values[1], moo.ActorDied)
    with pytest.raises(moo.ActorDied):
        members.call(Counter.add).get()
    assert members[3].add(0) == 4
