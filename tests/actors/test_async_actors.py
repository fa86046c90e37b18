# SPDX-License-Identifier: MIT
"""Actors that run several methods at once: async ones, or sync ones in threads."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import mooactor as moo
from tests.actors.counter import Async, Counter, Threaded


def test_async_methods_start_in_the_order_sent_and_interleave(spawn: Any) -> None:
    actor = spawn(Async)
    waiting = [actor.wait.remote() for _ in range(20)]
    moo.get([actor.append.remote(i) for i in range(300)])
    assert actor.ordered.remote().get() == list(range(300))
    actor.set.remote()
    assert moo.get(waiting, timeout=60) == ["set"] * 20


def test_the_plain_call_of_an_async_method_is_awaitable(spawn: Any) -> None:
    actor = spawn(Async)

    async def main() -> tuple[float, int]:
        return await actor.nap(0.01), await actor.peek()

    for _ in range(2):  # in one loop after the other
        assert asyncio.run(main()) == (0.01, 0)


def test_a_sync_method_does_not_stop_the_loop(spawn: Any, tmp_path: Path) -> None:
    actor, gate = spawn(Async), tmp_path / "gate"
    blocked = actor.block.remote(gate)
    assert actor.nap.remote(0.01).get(timeout=30) == 0.01
    assert not blocked.done()
    gate.touch()
    assert blocked.get() == "gate"


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


def test_async_actors_call_others_and_await_them(spawn: Any) -> None:
    @moo.actor
    class Relay:
        async def double(self, counter: Any, x: int) -> int:
            return 2 * int(await counter.echo.remote(x))

    relay, counter = spawn(Relay), spawn(Counter)
    refs = [relay.double.remote(counter, i) for i in range(50)]
    assert moo.get(refs) == [2 * i for i in range(50)]
