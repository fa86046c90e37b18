# SPDX-License-Identifier: MIT
"""A task that is cancelled while it awaits a Ref: what becomes of the call."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from tests.actors.counter import Async, Counter


def soon(awaitable: Any) -> Coroutine[Any, Any, Any]:
    return asyncio.wait_for(awaitable, 0.05)


async def until(path: Path) -> None:
    while not path.exists():
        await asyncio.sleep(0.001)


def test_wait_for_cancels_a_sync_method_that_runs(spawn: Any, tmp_path: Path) -> None:
    counter, begun = spawn(Counter), tmp_path / "begun"

    async def main() -> None:
        ref = counter.until_cancelled.remote(begun)
        await until(begun)
        with pytest.raises(TimeoutError):
            await soon(ref)
        assert ref.cancelled()

    asyncio.run(main())
    assert counter.notes() == ["cancelled"]  # it is free again, at once


def test_wait_for_cancels_a_call_that_is_queued(spawn: Any) -> None:
    counter = spawn(Counter)

    async def main() -> None:
        running = counter.until_queued.remote(2)
        with pytest.raises(TimeoutError):
            await soon(counter.note.remote("queued"))
        # They arrive after the cancellation.
        await asyncio.gather(running, counter.echo.remote(1), counter.echo.remote(2))

    asyncio.run(main())
    assert counter.notes() == []


def test_wait_for_cancels_an_async_method_called_by_remote(
    spawn: Any, tmp_path: Path
) -> None:
    actor, begun = spawn(Async), tmp_path / "begun"

    async def main() -> None:
        ref = actor.forever.remote(begun)
        await until(begun)
        with pytest.raises(TimeoutError):
            await soon(ref)
        assert await actor.ordered() == [-1]  # it had asyncio.CancelledError

    asyncio.run(main())


def test_a_task_group_that_fails_cancels_its_calls(spawn: Any) -> None:
    counter, other = spawn(Counter), spawn(Counter)

    async def waits(ref: Any) -> Any:
        return await ref

    async def main() -> None:
        ref = counter.until_cancelled.remote()
        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(waits(ref))
                tasks.create_task(waits(other.fail.remote(ValueError("no"))))
        assert ref.cancelled()

    asyncio.run(main())
    assert counter.notes() in (["cancelled"], [])


def test_shield_keeps_the_call(spawn: Any, tmp_path: Path) -> None:
    counter, gate = spawn(Counter), tmp_path / "gate"

    async def main() -> None:
        ref = counter.until.remote(gate)
        with pytest.raises(TimeoutError):
            await soon(asyncio.shield(ref))
        gate.touch()
        assert await ref == "gate"

    asyncio.run(main())


def test_who_else_awaits_the_same_ref_gets_its_value(
    spawn: Any, tmp_path: Path
) -> None:
    counter, gate = spawn(Counter), tmp_path / "gate"

    async def waits(ref: Any) -> Any:
        return await ref

    async def main() -> None:
        ref = counter.until.remote(gate)
        other = asyncio.create_task(waits(ref))
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await soon(ref)
        gate.touch()
        assert await other == "gate"

    asyncio.run(main())


def test_who_was_passed_the_ref_gets_its_value(spawn: Any, tmp_path: Path) -> None:
    counter, other, gate = spawn(Counter), spawn(Counter), tmp_path / "gate"

    async def main() -> None:
        ref = counter.until.remote(gate)
        echoed = other.echo.remote(ref)
        nested = other.echo.remote([ref])
        with pytest.raises(TimeoutError):
            await soon(ref)
        gate.touch()
        assert await echoed == "gate"
        assert await (await nested)[0] == "gate"

    asyncio.run(main())


def test_the_awaiter_of_a_borrowed_value_gives_up_only_for_itself(
    spawn: Any, tmp_path: Path
) -> None:
    @moo.actor
    class Owner:
        def start(self, counter: Any, gate: Path) -> list[Any]:
            self.ref = counter.until.remote(gate)
            return [self.ref]

    gate = tmp_path / "gate"
    (borrowed,) = spawn(Owner).start(spawn(Counter), gate)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await soon(borrowed)
        gate.touch()
        assert await borrowed == "gate"

    asyncio.run(main())
