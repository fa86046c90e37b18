# SPDX-License-Identifier: MIT
from __future__ import annotations

import asyncio
from typing import Any

import mooactor as moo
from tests.actors.counter import Async, Counter, Threaded


def test_async_methods_interleave(spawn: Any) -> None:
    actor = spawn(Async)
    waiting = actor.wait.remote()
    actor.set.remote()
    assert waiting.get(timeout=60) == "set"


def test_async_methods_overlap_in_time(spawn: Any) -> None:
    actor = spawn(Async)
    moo.get([actor.nap.remote(1.0) for _ in range(20)])
    assert actor.at_most.remote().get() == 20


def test_the_plain_call_of_an_async_method_is_awaitable(spawn: Any) -> None:
    actor = spawn(Async)

    async def main() -> tuple[float, int]:
        return await actor.nap(0.01), await actor.peek()

    assert asyncio.run(main()) == (0.01, 0)


def test_async_calls_start_in_the_order_sent(spawn: Any) -> None:
    actor = spawn(Async)
    moo.get([actor.append.remote(i) for i in range(300)])
    assert actor.ordered.remote().get() == list(range(300))


def test_a_sync_method_does_not_stop_the_loop(spawn: Any) -> None:
    actor = spawn(Async)
    blocked = actor.block.remote(60)
    actor.nap.remote(0.01).get(timeout=30)
    assert not blocked.done()


def test_max_concurrency_bounds_what_overlaps(spawn: Any) -> None:
    @moo.actor(max_concurrency=2)
    class Two(Async):
        pass

    actor = spawn(Two)
    moo.get([actor.nap.remote(0.02) for _ in range(8)])
    assert actor.at_most.remote().get() == 2


def test_a_threaded_actor_runs_several_sync_methods_at_once(spawn: Any) -> None:
    actor = spawn(Threaded)
    # Each waits until all four run.
    moo.get([actor.meet.remote() for _ in range(4)], timeout=30)


def test_cancelling_an_awaited_call_cancels_the_method(spawn: Any) -> None:
    actor = spawn(Async)

    async def main() -> None:
        task = asyncio.ensure_future(actor.forever())
        await actor.peek()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        for _ in range(200):
            if await actor.ordered() == [-1]:
                return
        raise AssertionError("the method was not cancelled")

    asyncio.run(main())


def test_async_actors_call_others_and_await_them(spawn: Any) -> None:
    @moo.actor
    class Relay:
        async def double(self, counter: Any, x: int) -> int:
            return 2 * int(await counter.echo.remote(x))

    relay, counter = spawn(Relay), spawn(Counter)
    refs = [relay.double.remote(counter, i) for i in range(50)]
    assert moo.get(refs) == [2 * i for i in range(50)]
