# SPDX-License-Identifier: MIT
"""Deaths are known at once, with their cause and the last words."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

import mooactor as moo
from tests.actors.counter import Counter
from tests.conftest import at_best, eventually
from tests.processes import Process, stop


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM]
)
def test_a_signal_is_named(spawn: Any, number: int) -> None:
    counter = spawn(Counter)
    counter.echo()
    with pytest.raises(moo.ActorDied) as caught:
        counter.kill_self(number)
    assert caught.value.cause.kind == "signal"
    assert caught.value.cause.signal == number
    assert signal.Signals(number).name in str(caught.value)
    assert caught.value.delivered is None


def test_an_exit_code_and_the_last_lines_are_named(spawn: Any) -> None:
    counter = spawn(Counter)
    with pytest.raises(moo.ActorDied, match="exited with code 7") as caught:
        counter.exit(7)
    assert caught.value.cause.exitcode == 7
    assert caught.value.cause.stderr == ("about to leave",)
    assert "about to leave" in str(caught.value)


def test_sys_exit_in_a_method_ends_the_actor_with_that_code(spawn: Any) -> None:
    class Leaves:
        def leave(self) -> None:
            raise SystemExit(3)

    with pytest.raises(moo.ActorDied) as caught:
        spawn(Leaves).leave()
    assert caught.value.cause.exitcode == 3


def test_an_exception_in_the_constructor_is_the_cause(spawn: Any) -> None:
    class Broken:
        def __init__(self) -> None:
            raise LookupError("not found")

        def use(self) -> None: ...

    with pytest.raises(moo.ActorDied, match="LookupError: not found") as caught:
        spawn(Broken).use()
    assert isinstance(caught.value.cause.exception, LookupError)


def test_a_class_that_the_actor_cannot_import_is_the_cause(
    spawn: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    import importlib
    import sys

    (tmp_path / "only_here.py").write_text("class Only:\n    def use(self): ...\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    only = importlib.import_module("only_here").Only
    sys.path.pop()  # an actor has the path of its spawn
    with pytest.raises(moo.ActorDied, match="only_here"):
        spawn(only).use()
    del sys.modules["only_here"]


def test_kill_names_itself(spawn: Any) -> None:
    counter = spawn(Counter)
    ref = counter.sleep.remote(60)
    moo.kill(counter)
    with pytest.raises(moo.ActorDied, match=r"moo\.kill"):
        ref.get(timeout=60)


def test_death_is_known_within_fifty_milliseconds(spawn: Any) -> None:
    def seconds() -> float:
        counter = spawn(Counter)
        pid = counter.pid()
        ref = counter.sleep.remote(60)
        start = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        assert isinstance(ref.exception(timeout=60), moo.ActorDied)
        return time.perf_counter() - start

    assert at_best(seconds, 0.05, tries=20)  # the promise


def test_every_outstanding_call_of_a_dead_actor_ends(spawn: Any) -> None:
    counter = spawn(Counter)
    refs = [counter.sleep.remote(60)] + [counter.echo.remote(i) for i in range(300)]
    moo.kill(counter)
    assert all(isinstance(r.exception(timeout=60), moo.ActorDied) for r in refs)
    with pytest.raises(moo.ActorDied) as caught:
        counter.echo(1)
    assert caught.value.delivered is False


def test_replies_that_left_before_the_death_are_not_lost(spawn: Any) -> None:
    for _ in range(5):
        counter = spawn(Counter)
        refs = [counter.echo.remote(i) for i in range(40)]
        counter.sleep.tell(0.25)  # a hard exit takes along what libzmq has not sent
        last = counter.exit.remote(0)
        assert moo.get(refs, timeout=60) == list(range(40))
        assert isinstance(last.exception(timeout=60), moo.ActorDied)


def test_other_actors_learn_of_the_death_too(spawn: Any) -> None:
    first, second = spawn(Counter), spawn(Counter)
    ref = first.call.remote(second, "sleep", 60)
    second_pid = second.pid
    assert second_pid is not None
    time.sleep(0.1)  # the call may also be made after the death
    moo.kill(second)
    with pytest.raises(moo.ActorDied):
        ref.get(timeout=60)
    assert first.echo(1) == 1


def test_calling_an_actor_that_died_long_ago_ends_at_once(spawn: Any) -> None:
    dead, alive = spawn(Counter), spawn(Counter)
    dead.echo()
    moo.kill(dead)
    with pytest.raises(moo.ActorDied):
        alive.call(dead, "echo", 1)


def test_an_actor_that_holds_the_gil_is_not_declared_dead(spawn: Any) -> None:
    class Holds:
        def hold(self, seconds: float) -> str:
            import ctypes

            # PyDLL keeps the GIL while the C function sleeps.
            ctypes.PyDLL(None).usleep(int(seconds * 1e6))
            return "alive"

    assert spawn(Holds).hold(1.5) == "alive"


def test_a_stopped_process_is_not_declared_dead(spawn: Any) -> None:
    counter = spawn(Counter)
    pid = counter.pid()
    stop(pid)
    try:
        ref = counter.echo.remote(5)
        with pytest.raises(moo.CallTimeout):
            ref.get(timeout=0.5)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert ref.get(timeout=60) == 5


def test_kill_takes_the_actors_children_along(spawn: Any) -> None:
    class Forks:
        def fork(self) -> int:
            import subprocess

            return subprocess.Popen(["sleep", "60"]).pid

    forks = spawn(Forks)
    child = Process.of(forks.fork())
    moo.kill(forks)
    assert eventually(lambda: not child.is_running())
