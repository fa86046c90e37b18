# SPDX-License-Identifier: MIT
"""`moo.stop` and the session's end let what was accepted finish."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from mooactor.actors.handle import handle_of
from mooactor.control import envelope
from tests.conftest import eventually
from tests.marks import slow
from tests.process import programs

WAIT_S = 60.0


class Gate:
    """Holds callers up until a file exists; works the same in every actor."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def wait(self) -> str:
        assert eventually(self.path.exists, WAIT_S)
        return "opened"


class Common:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def take(self, value: Any) -> Any:
        return value

    def pid(self) -> int:
        return os.getpid()

    def hold(self, gate: Gate) -> str:
        return gate.wait()

    def count(self, n: int) -> Iterator[int]:
        yield from range(n)


@moo.actor
class Serial(Common):
    """One method at a time."""


@moo.actor(max_concurrency=2)
class Threaded(Common):
    """Two."""


@moo.actor
class Async(Common):
    async def pause(self) -> int:
        await asyncio.sleep(0)
        return 1


everywhere = pytest.mark.parametrize(
    "kind", [Serial, Threaded, Async], ids=lambda kind: kind.__name__
)


class Stopping:
    """`moo.stop` in a thread of its own."""

    def __init__(self, actor: Any) -> None:
        self.error: BaseException | None = None
        self._actor = actor
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            moo.stop(self._actor, timeout=WAIT_S)
        except BaseException as error:
            self.error = error

    def over(self) -> bool:
        return not self._thread.is_alive()

    def join(self) -> None:
        self._thread.join(2 * WAIT_S)
        assert self.over()
        assert self.error is None


@everywhere
def test_a_call_that_waits_for_a_ref_was_accepted(
    spawn: Any, tmp_path: Any, kind: Any
) -> None:
    gate = Gate(str(tmp_path / "gate"))
    actor, producer = spawn(kind), spawn(Serial)
    value = producer.hold.remote(gate)
    held = [actor.take.remote(value), actor.take.remote(2)]
    stopping = Stopping(actor)
    assert eventually(lambda: _refused(actor))
    gate.path.touch()
    assert moo.get(held, timeout=WAIT_S) == ["opened", 2]
    stopping.join()


def _refused(actor: Any) -> bool:
    # Of another priority, so that calls which wait for values do not hold it up.
    probe = actor.take.options(priority=1).remote(1)
    error = probe.exception(timeout=WAIT_S)
    if error is None:
        return False
    assert isinstance(error, moo.ActorUnavailable), error
    assert error.delivered is False
    return True


@everywhere
def test_a_stream_goes_on_while_its_consumer_takes(spawn: Any, kind: Any) -> None:
    actor = spawn(kind)
    stream = actor.count(1000)
    assert next(stream) == 0
    stopping = Stopping(actor)
    assert eventually(lambda: _refused(actor))
    assert not stopping.over()
    assert list(stream) == list(range(1, 1000))
    stopping.join()


@everywhere
def test_a_stream_that_is_dropped_holds_up_no_stop(spawn: Any, kind: Any) -> None:
    actor = spawn(kind)
    stream = actor.count(1000)
    assert next(stream) == 0
    stopping = Stopping(actor)
    assert eventually(lambda: _refused(actor))
    del stream
    stopping.join()


@everywhere
def test_a_consumer_that_dies_holds_up_no_stop(spawn: Any, kind: Any) -> None:
    class Consumer:
        def begin(self, producer: Any) -> int:
            self.stream = producer.count(1000)
            return next(self.stream)

    actor, consumer = spawn(kind), spawn(Consumer)
    assert consumer.begin(actor) == 0
    stopping = Stopping(actor)
    assert eventually(lambda: _refused(actor))
    assert not stopping.over()
    moo.kill(consumer)
    stopping.join()


@everywhere
def test_calls_after_a_stop_are_refused_and_never_lost(spawn: Any, kind: Any) -> None:
    actor = spawn(kind)
    actor.take(1)
    stopping = Stopping(actor)
    errors = []
    while not stopping.over():
        try:
            ref = actor.take.remote(1)
        except moo.ActorDied as error:
            errors.append(error)  # it is known to be gone
            break
        error = ref.exception(timeout=WAIT_S)
        if error is not None:
            errors.append(error)
    stopping.join()
    assert all(error.delivered is False for error in errors), errors


def test_what_was_sent_before_the_stop_runs_whoever_sent_it(spawn: Any) -> None:
    class Sender:
        def send_and_stop(self, target: Any, n: int) -> list[int]:
            refs = [target.take.remote(i) for i in range(n)]
            moo.stop(target, timeout=WAIT_S)
            return moo.get(refs)

    actor = spawn(Serial)
    assert spawn(Sender).send_and_stop(actor, 300) == list(range(300))


def test_a_stop_reaches_the_process_that_was_started_just_as_it_was_sent(
    spawn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that it was sent to is dead, and has not read it."""
    actor = moo.on(Serial, restart=moo.Restart(max=1)).spawn()
    runtime, link = handle_of(actor)._where()
    pid, post = actor.pid(), runtime.sender.post

    def post_late(process_id: int, kind: int, *rest: Any) -> None:
        if kind != envelope.STOP:
            post(process_id, kind, *rest)
            return
        os.kill(pid, signal.SIGKILL)
        assert eventually(lambda: link.incarnation == 1)

    monkeypatch.setattr(runtime.sender, "post", post_late)
    moo.stop(actor, timeout=10.0)


def test_the_session_s_end_lets_accepted_calls_finish(tmp_path: Any) -> None:
    script = programs.write(
        tmp_path / "ends.py",
        """
        import pathlib, time
        import mooactor as moo

        OUT = pathlib.Path(__file__).with_suffix(".out")

        @moo.actor
        class Writer:
            def __init__(self):
                self.lines = []
            def add(self, i):
                time.sleep(0.001)
                self.lines.append(i)
            def count(self):
                yield from range(1000)
            def on_stop(self):
                OUT.write_text(str(len(self.lines)))

        moo.init()
        writer = moo.spawn(Writer)
        writer.add(0)
        stream = writer.count()
        next(stream)
        for i in range(100):
            writer.add.tell(i)
        writer.count.options(priority=5)  # nothing of it is sent
        start = time.monotonic()
        moo.shutdown(grace=60)
        print(time.monotonic() - start < 50)
        """,
    )
    ended = programs.run(script)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "ends.out").read_text() == "101"


@contextmanager
def starved(thread: str) -> Iterator[None]:
    """A thread of this process gets a fiftieth of a core, beside others."""
    tasks = Path("/proc/self/task")
    (tid,) = (
        int(task.name)
        for task in tasks.iterdir()
        if (task / "comm").read_text().strip() == thread
    )
    cores = len(os.sched_getaffinity(0))
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(2 * cores)
    ]
    try:
        os.setpriority(os.PRIO_PROCESS, tid, 15)
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
        with suppress(PermissionError):  # of this session, and of no importance then
            os.setpriority(os.PRIO_PROCESS, tid, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [Serial, slow(Threaded), slow(Async)], ids=lambda kind: kind.__name__
)
def test_no_answer_is_lost_that_comes_later_than_the_news_of_the_end(
    spawn: Any, kind: Any
) -> None:
    actor = spawn(kind)
    actor.take(0)
    with starved("ZMQbg/IO/0"):
        for _ in range(4):
            actor = spawn(kind)
            calls = [actor.take.remote(number) for number in range(20)]
            moo.stop(actor)
            assert moo.get(calls, timeout=WAIT_S) == list(range(20))
