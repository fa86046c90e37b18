# SPDX-License-Identifier: MIT
"""Cycles of calls that wait for each other, whatever they wait by."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import mooactor as moo


@moo.actor
class Ring:
    """Waits for others in every way there is."""

    def leaf(self) -> str:
        return "leaf"

    def leaves(self) -> Iterator[str]:
        yield "leaf"

    def by_call(self, path: list[Any]) -> Any:
        first, *rest = path
        return first.by_call(rest) if rest else first.leaf()

    def by_stream(self, path: list[Any]) -> Any:
        first, *rest = path
        return first.by_stream(rest) if rest else list(first.leaves())

    def by_group(self, path: list[Any]) -> Any:
        first, *rest = path
        members = moo.Group([first])
        if rest:
            return members.call(Ring.by_group, rest).get()
        return members.call(Ring.leaf).get()

    def by_wait(self, path: list[Any]) -> Any:
        first, *rest = path
        ref = first.by_wait.remote(rest) if rest else first.leaf.remote()
        done, _ = moo.wait([ref])
        return done[0].get()

    def by_as_completed(self, path: list[Any]) -> Any:
        first, *rest = path
        ref = first.by_as_completed.remote(rest) if rest else first.leaf.remote()
        return [ref.get() for ref in moo.as_completed([ref])]

    def with_one_way_out(self, me: Any, other: Any) -> int:
        done, rest = moo.wait([me.leaf.remote(), other.nap.remote(0.8)], num_returns=1)
        for ref in rest:
            ref.cancel()
        return len(done)

    def nap(self, seconds: float) -> None:
        time.sleep(seconds)

    def in_a_thread(self, me: Any) -> str:
        errors: list[BaseException] = []

        def call() -> None:
            try:
                me.leaf.options(timeout=0.5)()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        return type(errors[0]).__name__


WAYS = ["by_call", "by_stream", "by_group", "by_wait", "by_as_completed"]


@pytest.mark.parametrize("way", WAYS)
def test_an_actor_that_waits_for_itself_is_told(spawn: Any, way: str) -> None:
    ring = spawn(Ring)
    with pytest.raises(moo.DeadlockError, match="Ring"):
        getattr(ring, way)([ring])
    assert ring.leaf() == "leaf"


@pytest.mark.parametrize("way", WAYS)
def test_a_cycle_of_three_is_told(spawn: Any, way: str) -> None:
    a, b, c = spawn(Ring), spawn(Ring), spawn(Ring)
    with pytest.raises(moo.DeadlockError):
        getattr(a, way)([b, c, a])
    assert [x.leaf() for x in (a, b, c)] == ["leaf"] * 3


def test_a_wait_with_another_way_out_is_no_cycle(spawn: Any) -> None:
    one, other = spawn(Ring), spawn(Ring)
    assert one.with_one_way_out(one, other) == 1


def test_a_cycle_through_a_thread_of_the_users_ends_with_its_deadline(
    spawn: Any,
) -> None:
    ring = spawn(Ring)
    assert ring.in_a_thread(ring) == "CallTimeout"


@moo.actor
class Mixed:
    """Has one thread for its sync methods, because it has an async method."""

    async def awaits(self, other: Any) -> Any:
        return await other.leaf.remote()

    async def async_leaf(self) -> str:
        return "leaf"

    def leaf(self) -> str:
        return "leaf"

    def calls(self, path: list[Any]) -> Any:
        first, *rest = path
        return first.calls(rest) if rest else first.leaf()

    def later(self, path: list[Any]) -> Any:
        first, *rest = path
        ref = first.later.remote(rest) if rest else first.leaf.remote()
        return ref.get()

    def calls_async(self, me: Any) -> Any:
        return me.async_leaf.remote().get()

    async def blocks_the_loop(self, seconds: float) -> None:
        time.sleep(seconds)

    def calls_async_late(self, me: Any) -> Any:
        me.blocks_the_loop.tell(1.0)
        return me.async_leaf.remote().get()


@pytest.mark.parametrize("way", ["calls", "later"])
@pytest.mark.parametrize("through", [0, 1])
def test_a_sync_method_of_an_async_actor_that_waits_for_its_own_thread_is_told(
    spawn: Any, way: str, through: int
) -> None:
    mixed, others = spawn(Mixed), [spawn(Mixed) for _ in range(through)]
    with pytest.raises(moo.DeadlockError):
        getattr(mixed, way)([*others, mixed])
    assert mixed.leaf() == "leaf"


def test_a_sync_method_may_wait_for_an_async_one_of_its_actor(spawn: Any) -> None:
    mixed = spawn(Mixed)
    assert mixed.calls_async(mixed) == "leaf"
    assert mixed.awaits.remote(mixed).get() == "leaf"


def test_one_that_the_loop_is_late_with_is_no_cycle(spawn: Any) -> None:
    mixed = spawn(Mixed)
    assert mixed.calls_async_late(mixed) == "leaf"


@moo.actor(max_concurrency=3)
class Threads:
    def down(self, me: Any, depth: int) -> int:
        return me.down(me, depth - 1) + 1 if depth else 0


def test_recursion_as_deep_as_there_are_threads_is_fine(spawn: Any) -> None:
    threads = spawn(Threads)
    assert threads.down(threads, 2) == 2


def test_deeper_recursion_is_told(spawn: Any) -> None:
    threads = spawn(Threads)
    with pytest.raises(moo.DeadlockError, match="3 calls at once"):
        threads.down(threads, 3)
    assert threads.down(threads, 2) == 2
