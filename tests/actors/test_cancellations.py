# SPDX-License-Identifier: MIT
"""A call that is cancelled, or whose deadline has passed, does not begin, wherever it
is just then; whoever waits for it learns of that at once."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from mooactor.control.messenger import lib
from mooactor.process.current import current_runtime
from tests.actors.counter import Async, Counter
from tests.conftest import eventually
from tests.gates import wait_at

GIVEN_UP = (moo.CallTimeout, moo.Cancelled)
WAYS = pytest.mark.parametrize("way", ["deadline", "cancel"])


def give_up(start: Callable[[float | None], Any], way: str) -> None:
    """Start a call, and see it given up."""
    ref = start(0.1 if way == "deadline" else None)
    if way == "cancel":
        assert ref.cancel()
        assert not ref.cancel()
    with pytest.raises(GIVEN_UP):
        ref.get()
    assert ref.cancelled() == (way == "cancel")


@pytest.fixture
def held(spawn: Any, tmp_path: Path) -> tuple[Any, Callable[[], None]]:
    """An actor whose method runs until the function is called."""
    counter, gate, begun = spawn(Counter), tmp_path / "gate", tmp_path / "begun"
    blocker = counter.until.remote(gate, begun)
    assert eventually(begun.exists)
    return counter, lambda: (gate.touch(), blocker.get(), None)[2]


# -- where it is -----------------------------------------------------------


@WAYS
def test_one_that_is_queued(held: Any, way: str) -> None:
    counter, let_go = held
    give_up(lambda timeout: counter.note.options(timeout=timeout).remote(1), way)
    let_go()
    assert counter.notes() == []


def test_a_sync_method_that_runs_sees_the_flag(spawn: Any, tmp_path: Path) -> None:
    counter, begun = spawn(Counter), tmp_path / "begun"
    ref = counter.until_cancelled.remote(begun)
    assert eventually(begun.exists)
    assert ref.cancel()
    assert counter.notes() == ["cancelled"]
    # A deadline ends it, too; what it returns then is no result.
    for _ in range(20):
        with pytest.raises(moo.CallTimeout):
            counter.until_cancelled.options(timeout=0.01)()
    counter.until_cancelled.options(timeout=0.01).tell()
    assert counter.echo(1) == 1


def test_an_async_method_that_runs_gets_cancelled_error(
    spawn: Any, tmp_path: Path
) -> None:
    actor, begun = spawn(Async), tmp_path / "begun"
    ref = actor.forever.remote(begun)
    assert eventually(begun.exists)
    assert ref.cancel()
    assert eventually(lambda: actor.ordered.remote().get() == [-1])
    done = actor.peek.remote()
    assert done.get() == 1
    assert done.cancel() is False and done.get() == 1


@moo.actor
class OneThread:
    """Its sync methods share one thread."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def until(self, gate: Path, begun: Path) -> None:
        begun.touch()
        wait_at(gate)

    def note(self, item: str) -> None:
        self.seen.append(item)

    def items(self, item: str) -> Iterator[str]:
        self.seen.append(item)
        yield item

    async def notes(self) -> list[str]:
        return self.seen


@WAYS
def test_one_that_waits_for_a_thread(spawn: Any, tmp_path: Path, way: str) -> None:
    handle, gate, begun = spawn(OneThread), tmp_path / "gate", tmp_path / "begun"
    blocker = handle.until.remote(gate, begun)
    assert eventually(begun.exists)

    def start(timeout: float | None) -> Any:
        ref = handle.note.options(timeout=timeout).remote("given up")
        assert timeout or handle.notes.remote().get() == []  # it is admitted
        return ref

    give_up(start, way)
    stream = handle.items("given up")
    handle.notes.remote().get()  # it is admitted
    stream.close()
    assert handle.notes.remote().get() == []  # the actor has heard of all that
    gate.touch()
    blocker.get()
    handle.note.remote("wanted").get()
    assert handle.notes.remote().get() == ["wanted"]


def test_all_calls_of_a_group(group: Any, tmp_path: Path) -> None:
    members, gate = group(Counter, 3), tmp_path / "gate"
    blockers = members.until.call(gate)
    notes = members.note.call("given up")
    assert notes.cancel()
    with pytest.raises(moo.Cancelled):
        notes.get()
    assert all(ref.cancelled() for ref in notes.parts)
    members.echo.tell(1)
    gate.touch()
    blockers.get()
    assert members.notes.call().get() == [[], [], []]


# -- what a deadline covers ------------------------------------------------


def test_a_deadline_is_named_and_may_be_the_methods_own(spawn: Any) -> None:
    class Slow:
        @moo.method(timeout=0.1)
        def nap(self) -> None:
            threading.Event().wait()

    with pytest.raises(moo.CallTimeout, match=r"Counter\.sleep .*0\.1 s"):
        spawn(Counter).sleep.options(timeout=0.1)(60.0)
    with pytest.raises(moo.CallTimeout):
        spawn(Slow).nap()


def test_a_deadline_covers_all_attempts(spawn: Any) -> None:
    class Dies:
        def die(self) -> None:
            os._exit(1)

    policy = moo.Restart(max=1 << 30, within=1e6, backoff=0.05)
    with pytest.raises(moo.CallTimeout):
        spawn(moo.on(Dies, restart=policy)).die.options(timeout=1.0, retries=10**6)()


def test_a_deadline_covers_nested_calls(spawn: Any) -> None:
    outer, inner = spawn(Counter), spawn(Counter)
    assert outer.call_time_left(inner) is None
    left = outer.call_time_left.options(timeout=1000.0)(inner)
    assert 0.0 < left < 1000.0
    with pytest.raises(moo.CallTimeout):
        outer.call.options(timeout=0.2)(inner, "sleep", 600.0)
    assert outer.echo(2) == 2


def test_a_thread_that_waits_alone_learns_of_a_cancellation(held: Any) -> None:
    counter, let_go = held
    ref = counter.echo.remote(1)
    thread = threading.Thread(target=ref.exception)
    thread.start()
    inbox = current_runtime().messenger.inbox
    assert eventually(lambda: lib.moo_inbox_led(inbox))
    assert ref.cancel()
    thread.join(20)
    assert not thread.is_alive()
    let_go()


# -- a task that is cancelled while it awaits a Ref ------------------------


def soon(awaitable: Any) -> Coroutine[Any, Any, Any]:
    return asyncio.wait_for(awaitable, 0.05)


async def until(path: Path) -> None:
    while not path.exists():
        await asyncio.sleep(0)


async def waits(ref: Any) -> Any:
    return await ref


def test_the_end_of_a_task_cancels_its_call(spawn: Any, tmp_path: Path) -> None:
    counter, actor, other = spawn(Counter), spawn(Async), spawn(Counter)

    async def main() -> None:
        ref = counter.until_cancelled.remote(tmp_path / "sync")
        await until(tmp_path / "sync")
        with pytest.raises(TimeoutError):
            await soon(ref)
        assert ref.cancelled()
        assert await counter.notes.remote() == ["cancelled"]  # it is free again

        async_one = actor.forever.remote(tmp_path / "async")
        await until(tmp_path / "async")
        with pytest.raises(TimeoutError):
            await soon(async_one)
        plainly = asyncio.ensure_future(actor.forever(tmp_path / "plain"))
        await until(tmp_path / "plain")
        plainly.cancel()
        await asyncio.gather(plainly, return_exceptions=True)
        assert plainly.cancelled()
        while await actor.ordered() != [-1, -1]:  # both had asyncio.CancelledError
            pass

        ref = counter.until_cancelled.remote()
        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(waits(ref))
                tasks.create_task(waits(other.fail.remote(ValueError("no"))))
        assert ref.cancelled()

    asyncio.run(main())


def test_a_call_that_somebody_else_wants_goes_on(spawn: Any, tmp_path: Path) -> None:
    class Owner:
        def start(self, counter: Any, gate: Path) -> list[Any]:
            self.ref = counter.until.remote(gate)
            return [self.ref]

    counter, other, gates = spawn(Counter), spawn(Counter), iter("abcd")

    async def given_up_and_gets(ref: Any, wanted: Any, gate: Path) -> Any:
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await soon(ref)
        gate.touch()
        return await wanted

    async def main() -> None:
        gate = tmp_path / next(gates)
        ref = counter.until.remote(gate)
        assert await given_up_and_gets(asyncio.shield(ref), ref, gate) == "a"
        gate = tmp_path / next(gates)
        ref = counter.until.remote(gate)
        task = asyncio.create_task(waits(ref))
        assert await given_up_and_gets(ref, task, gate) == "b"
        gate = tmp_path / next(gates)
        ref = counter.until.remote(gate)
        passed, nested = other.echo.remote(ref), other.echo.remote([ref])
        assert await given_up_and_gets(ref, passed, gate) == "c"
        assert await (await nested)[0] == "c"
        gate = tmp_path / next(gates)
        (borrowed,) = await spawn(Owner).start.remote(counter, gate)
        assert await given_up_and_gets(borrowed, borrowed, gate) == "d"

    asyncio.run(main())
