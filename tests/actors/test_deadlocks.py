# SPDX-License-Identifier: MIT
from __future__ import annotations

from typing import Any

import pytest

import mooactor as moo
from tests.actors.counter import Counter


@moo.actor
class Knot:
    def self_call(self) -> Any:
        return moo.current().handle.leaf()

    def self_call_later(self) -> Any:
        return moo.current().handle.leaf.remote().get()

    def leaf(self) -> str:
        return "leaf"

    def round(self, others: list[Any]) -> Any:
        first, *rest = others
        return first.round(rest) if rest else first.leaf()

    def meet(self, other: Any, barrier: Any) -> Any:
        barrier.arrive()
        while barrier.arrived() < 2:
            pass
        return other.leaf.remote().get()


@moo.actor
class Barrier:
    def __init__(self) -> None:
        self.count = 0

    def arrive(self) -> None:
        self.count += 1

    def arrived(self) -> int:
        return self.count


@pytest.mark.parametrize("method", ["self_call", "self_call_later"])
def test_an_actor_that_waits_for_itself_is_told(spawn: Any, method: str) -> None:
    knot = spawn(Knot)
    with pytest.raises(moo.DeadlockError):
        getattr(knot, method)()
    assert knot.leaf() == "leaf"


def test_a_cycle_of_plain_calls_is_refused_at_once(spawn: Any) -> None:
    a, b, c = spawn(Knot), spawn(Knot), spawn(Knot)
    with pytest.raises(moo.DeadlockError):
        a.round([b, c, a])
    assert [x.leaf() for x in (a, b, c)] == ["leaf"] * 3


def test_two_actors_that_call_each_other_at_once_are_told(spawn: Any) -> None:
    a, b, barrier = spawn(Knot), spawn(Knot), spawn(Barrier)
    refs = [a.meet.remote(b, barrier), b.meet.remote(a, barrier)]
    errors = [ref.exception(timeout=60) for ref in refs]
    assert any(isinstance(error, moo.DeadlockError) for error in errors)
    assert [a.leaf(), b.leaf()] == ["leaf", "leaf"]


@moo.actor
class Relay:
    async def leaf_of(self, knot: Any) -> Any:
        return await knot.leaf.remote()


@moo.actor
class AsksRelay(Knot):
    def ask(self, relay: Any) -> Any:
        return relay.leaf_of.remote(moo.current().handle).get()


def test_a_cycle_through_an_async_actor_is_found(spawn: Any) -> None:
    asker, relay = spawn(AsksRelay), spawn(Relay)
    error = asker.ask.remote(relay).exception(timeout=60)
    assert isinstance(error, moo.DeadlockError)
    assert error.cycle == ("AsksRelay", "Relay")
    assert relay.leaf_of.remote(asker).get() == "leaf"


def test_a_long_chain_without_a_cycle_is_fine(spawn: Any) -> None:
    actors = [spawn(Knot) for _ in range(5)]
    assert actors[0].round(actors[1:]) == "leaf"


def test_a_slow_callee_is_no_deadlock(spawn: Any) -> None:
    outer, inner = spawn(Counter), spawn(Counter)
    assert outer.call(inner, "sleep", 0.8) == 0.8


@moo.actor
class Patient:
    """Waits with a timeout for one that waits for it."""

    def start(self, me: Any, other: Any) -> int:
        self.ref = other.ask.remote(me)
        done, _ = moo.wait([self.ref], timeout=0.7)
        return len(done)

    def get(self, me: Any, other: Any) -> int:
        self.ref = other.ask.remote(me)
        try:
            self.ref.get(timeout=0.7)
        except moo.CallTimeout:
            return 0
        return 1

    def ask(self, other: Any) -> Any:
        return other.answer()

    def answer(self) -> str:
        return "answer"

    def result(self) -> Any:
        return self.ref.get()


@pytest.mark.parametrize("method", ["start", "get"])
def test_a_wait_that_ends_by_itself_is_no_deadlock(spawn: Any, method: str) -> None:
    one, other = spawn(Patient), spawn(Patient)
    assert getattr(one, method)(one, other) == 0
    assert one.result() == "answer"
