# SPDX-License-Identifier: MIT
"""A task that is cancelled while it awaits a Ref: what becomes of the call."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

import mooactor as moo
from tests.actors.counter import Async, Counter


def soon(awaitable: Any, timeout: float = 0.05) -> Coroutine[Any, Any, Any]:
    return asyncio.wait_for(awaitable, timeout)


def test_wait_for_cancels_a_sync_method_that_runs(spawn: Any) -> None:
    counter = spawn(Counter)
    counter.add()

    async def main() -> None:
        ref = counter.until_cancelled.remote()
        with pytest.raises(TimeoutError):
            await soon(ref, 0.3)
        assert ref.cancelled()

    asyncio.run(main())
    assert counter.notes() == ["cancelled"]  # it is free again, at once


def test_wait_for_cancels_a_call_that_is_queued(spawn: Any) -> None:
    counter = spawn(Counter)

    async def main() -> None:
        running = counter.sleep.remote(0.5)
        with pytest.raises(TimeoutError):
            await soon(counter.note.remote("queued"))
        await running

    asyncio.run(main())
    assert counter.notes() == []


def test_wait_for_cancels_an_async_method_called_by_remote(spawn: Any) -> None:
    actor = spawn(Async)

    async def main() -> None:
        await actor.peek()
        with pytest.raises(TimeoutError):
            await soon(actor.forever.remote(), 0.3)
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


def test_shield_keeps_the_call(spawn: Any) -> None:
    counter = spawn(Counter)

    async def main() -> None:
        ref = counter.sleep.remote(0.2)
        with pytest.raises(TimeoutError):
            await soon(asyncio.shield(ref))
        assert await ref == 0.2

    asyncio.run(main())


def test_who_else_awaits_the_same_ref_gets_its_value(spawn: Any) -> None:
    counter = spawn(Counter)

    async def waits(ref: Any) -> Any:
        return await ref

    async def main() -> None:
        ref = counter.sleep.remote(0.3)
        other = asyncio.create_task(waits(ref))
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await soon(ref)
        assert await other == 0.3

    asyncio.run(main())


def test_who_was_passed_the_ref_gets_its_value(spawn: Any) -> None:
    counter, other = spawn(Counter), spawn(Counter)

    async def main() -> None:
        ref = counter.sleep.remote(0.3)
        echoed = other.echo.remote(ref)
        nested = other.echo.remote([ref])
        with pytest.raises(TimeoutError):
            await soon(ref)
        assert await echoed == 0.3
        assert await (await nested)[0] == 0.3

    asyncio.run(main())


def test_the_awaiter_of_a_borrowed_value_gives_up_only_for_itself(spawn: Any) -> None:
    @moo.actor
    class Owner:
        def start(self, counter: Any) -> list[Any]:
            self.ref = counter.sleep.remote(0.3)
            return [self.ref]

    (borrowed,) = spawn(Owner).start(spawn(Counter))

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await soon(borrowed)
        assert await borrowed == 0.3

    asyncio.run(main())
