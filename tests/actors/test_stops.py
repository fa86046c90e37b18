# SPDX-License-Identifier: MIT
"""`moo.stop` and the session's end let what was accepted finish."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from tests.conftest import eventually
from tests.gates import wait_at

WAIT_S = 60.0


class Common:
    def take(self, value: Any) -> Any:
        return value

    def until(self, gate: Path) -> str:
        wait_at(gate)
        return gate.name

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

    def is_heard_of(self) -> bool:
        """Wait until no more calls are accepted; whether it is not over then."""
        assert eventually(lambda: _refused(self._actor))
        return self._thread.is_alive()

    def over(self) -> bool:
        return not self._thread.is_alive()

    def join(self) -> None:
        self._thread.join(2 * WAIT_S)
        assert self.over()
        assert self.error is None


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
def test_calls_that_were_accepted_run_also_those_that_wait_for_a_ref(
    spawn: Any, tmp_path: Path, kind: Any
) -> None:
    gate, actor, producer = tmp_path / "gate", spawn(kind), spawn(Serial)
    value = producer.until.remote(gate)
    held = [actor.take.remote(value), actor.take.remote(2)]
    stopping = Stopping(actor)
    assert stopping.is_heard_of()
    gate.touch()
    assert moo.get(held, timeout=WAIT_S) == ["gate", 2]
    stopping.join()


@everywhere
@pytest.mark.parametrize("end", ["taken", "dropped", "its consumer dies"])
def test_a_stream_holds_up_a_stop_as_long_as_it_has_a_consumer(
    spawn: Any, kind: Any, end: str
) -> None:
    class Consumer:
        def begin(self, producer: Any) -> int:
            self.stream = producer.count(1000)
            return next(self.stream)

    actor = spawn(kind)
    if end == "its consumer dies":
        consumer = spawn(Consumer)
        assert consumer.begin(actor) == 0
    else:
        stream = actor.count(1000)
        assert next(stream) == 0
    stopping = Stopping(actor)
    assert stopping.is_heard_of()
    if end == "its consumer dies":
        moo.kill(consumer)
    elif end == "taken":
        assert list(stream) == list(range(1, 1000))
    else:
        del stream
    stopping.join()


@everywhere
def test_calls_after_a_stop_are_refused_and_never_lost(spawn: Any, kind: Any) -> None:
    actor = spawn(kind)
    actor.take(1)
    stopping = Stopping(actor)
    errors = []
    while not stopping.over():
        error = actor.take.remote(1).exception(timeout=WAIT_S)
        if error is not None:
            errors.append(error)
    stopping.join()
    assert all(error.delivered is False for error in errors), errors


def test_what_was_sent_before_the_stop_runs_and_on_stop_after_it(
    spawn: Any, tmp_path: Path
) -> None:
    class Careful(Common):
        def __init__(self, out: Path) -> None:
            self.done, self.out = 0, out

        def take(self, value: Any) -> Any:
            self.done += 1
            return value

        def on_stop(self) -> None:
            self.out.write_text(str(self.done))
            raise BaseException("which loses no reply")

    class Sender:
        def send_and_stop(self, target: Any, n: int) -> list[int]:
            refs = [target.take.remote(i) for i in range(n)]
            moo.stop(target, timeout=WAIT_S)
            return moo.get(refs)

    careful = spawn(Careful, tmp_path / "out")
    assert spawn(Sender).send_and_stop(careful, 300) == list(range(300))
    assert (tmp_path / "out").read_text() == "300"


def test_async_hooks_share_the_loop_of_the_methods(spawn: Any, tmp_path: Path) -> None:
    class Looped:
        async def on_start(self) -> None:
            self.loop = asyncio.get_running_loop()
            self.queue: asyncio.Queue[int] = asyncio.Queue()
            self.task = self.loop.create_task(self._serve())
            self.served: list[int] = []

        async def _serve(self) -> None:
            while True:
                self.served.append(await self.queue.get())

        async def put(self, item: int) -> bool:
            await self.queue.put(item)
            return asyncio.get_running_loop() is self.loop

        async def on_stop(self) -> None:
            same = asyncio.get_running_loop() is self.loop
            out.write_text(f"{same} {self.served} {self.task.done()}")
            raise BaseException("which loses no reply")

    out = tmp_path / "out"
    actor = spawn(Looped)
    puts = [actor.put.remote(i) for i in range(3)]
    moo.stop(actor, timeout=WAIT_S)
    assert moo.get(puts, timeout=WAIT_S) == [True] * 3
    assert out.read_text() == "True [0, 1, 2] False"
