# SPDX-License-Identifier: MIT
"""Actors that would wait for each other for ever are told, whatever they wait by; no
others are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from tests.gates import wait_at

#: A wait that is longer than the deadlock detector's first two probes.
LONG_S = 0.7


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

    def by_get(self, path: list[Any]) -> Any:
        first, *rest = path
        ref = first.by_get.remote(rest) if rest else first.leaf.remote()
        return ref.get()

    def by_stream(self, path: list[Any]) -> Any:
        first, *rest = path
        return first.by_stream(rest) if rest else next(first.leaves())

    def by_group(self, path: list[Any]) -> Any:
        first, *rest = path
        members = moo.Group([first])
        if rest:
            return members.call(Ring.by_group, rest).get()[0]
        return members.call(Ring.leaf).get()[0]

    def by_as_completed(self, path: list[Any]) -> Any:
        first, *rest = path
        ref = first.by_as_completed.remote(rest) if rest else first.leaf.remote()
        return next(moo.as_completed([ref])).get()

    def meet(self, other: Any, mine: Path, others: Path) -> Any:
        mine.touch()
        wait_at(others)
        return other.leaf.remote().get()

    def nap(self, seconds: float) -> str:
        time.sleep(seconds)  # the others' probes come meanwhile
        return "leaf"

    def with_one_way_out(self, me: Any, other: Any) -> int:
        refs = [me.leaf.remote(), other.nap.remote(LONG_S)]
        done, rest = moo.wait(refs, num_returns=1)
        for ref in rest:
            ref.cancel()
        return len(done)

    def with_a_timeout(self, me: Any, other: Any) -> str:
        self.ref = other.by_call.remote([me])
        try:
            return str(self.ref.get(timeout=LONG_S))
        except moo.CallTimeout:
            return "given up"


WAYS = ["by_call", "by_get", "by_stream", "by_group", "by_as_completed"]


@pytest.mark.parametrize("way", WAYS)
def test_a_cycle_is_told_and_a_chain_is_not(spawn: Any, way: str) -> None:
    a, b, c = spawn(Ring), spawn(Ring), spawn(Ring)
    for path in ([a], [b, c, a]):
        with pytest.raises(moo.DeadlockError, match="Ring"):
            getattr(a, way)(path)
    assert getattr(a, way)([b, c]) == "leaf"


def test_two_actors_that_call_each_other_at_once_are_told(
    spawn: Any, tmp_path: Path
) -> None:
    a, b, gates = spawn(Ring), spawn(Ring), [tmp_path / "a", tmp_path / "b"]
    refs = [a.meet.remote(b, *gates), b.meet.remote(a, *reversed(gates))]
    errors = [ref.exception(timeout=60) for ref in refs]
    assert any(isinstance(error, moo.DeadlockError) for error in errors)
    assert [a.leaf(), b.leaf()] == ["leaf", "leaf"]


def test_a_wait_that_can_end_is_no_cycle(spawn: Any) -> None:
    one, other = spawn(Ring), spawn(Ring)
    assert one.with_one_way_out(one, other) == 1
    assert one.with_a_timeout(one, other) == "given up"
    assert one.by_call([other]) == "leaf"


@moo.actor
class Mixed(Ring):
    """Has one thread for its sync methods, because it has an async method."""

    async def awaits(self, other: Any) -> Any:
        return await other.leaf.remote()

    async def async_leaf(self) -> str:
        return "leaf"

    async def blocks_the_loop(self, seconds: float) -> None:
        time.sleep(seconds)  # the others' probes come meanwhile

    def calls_async(self, me: Any, *, late: bool) -> Any:
        if late:
            me.blocks_the_loop.tell(LONG_S)
        return me.async_leaf.remote().get()


def test_a_sync_method_of_an_async_actor_that_waits_for_its_own_thread_is_told(
    spawn: Any,
) -> None:
    mixed, other = spawn(Mixed), spawn(Mixed)
    for path in ([mixed], [other, mixed]):
        with pytest.raises(moo.DeadlockError):
            mixed.by_get(path)
    assert mixed.leaf() == "leaf"


def test_a_cycle_through_an_async_method_is_told(spawn: Any) -> None:
    @moo.actor
    class Asks(Ring):
        def ask(self, relay: Any) -> Any:
            return relay.awaits.remote(moo.current().handle).get()

    asks, relay = spawn(Asks), spawn(Mixed)
    error = asks.ask.remote(relay).exception(timeout=60)
    assert isinstance(error, moo.DeadlockError)
    assert [name.rpartition(".")[2] for name in error.cycle] == ["Asks", "Mixed"]
    assert relay.awaits.remote(asks).get() == "leaf"


def test_a_sync_method_may_wait_for_an_async_one_of_its_actor(spawn: Any) -> None:
    mixed = spawn(Mixed)
    assert mixed.calls_async(mixed, late=False) == "leaf"
    assert mixed.awaits.remote(mixed).get() == "leaf"
    assert mixed.calls_async(mixed, late=True) == "leaf"
