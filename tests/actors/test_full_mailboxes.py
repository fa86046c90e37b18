# SPDX-License-Identifier: MIT
"""Actors that wait for room in each other's mailboxes."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import mooactor as moo
from mooactor.process import admission, deadlock
from tests.conftest import eventually

SMALL = 3


@moo.actor(max_pending=SMALL)
class Feeder:
    """Calls others more often than their mailbox holds."""

    def __init__(self) -> None:
        self.eaten = 0

    def eat(self, seconds: float = 0.0) -> None:
        time.sleep(seconds)
        self.eaten += 1

    def meals(self) -> int:
        return self.eaten

    def feed(self, others: list[Any], meals: int, barrier: Any = None) -> list[str]:
        """The names of the errors of so many calls of each."""
        _meet(barrier)
        refs = [other.eat.remote() for other in others for _ in range(meals)]
        return [type(ref.exception()).__name__ for ref in refs if ref.done()]

    def tell(self, others: list[Any], meals: int, barrier: Any) -> None:
        _meet(barrier)
        for _ in range(meals):
            for other in others:
                other.eat.tell()

    def ask(self, other: Any, barrier: Any) -> Any:
        _meet(barrier)
        return other.eat.remote().get()

    def last_error(self, other: Any, barrier: Any) -> Any:
        _meet(barrier)
        refs = [other.eat.remote() for _ in range(SMALL + 1)]
        return refs[-1].exception()


def _meet(barrier: Any) -> None:
    if barrier is not None:
        barrier.arrive()
        while not barrier.is_complete():
            pass


@moo.actor
class Barrier:
    def __init__(self, parties: int) -> None:
        self.missing = parties

    def arrive(self) -> None:
        self.missing -= 1

    def is_complete(self) -> bool:
        return self.missing <= 0


def test_two_that_fill_each_others_mailboxes_are_told(spawn: Any) -> None:
    a, b, barrier = spawn(Feeder), spawn(Feeder), spawn(Barrier, 2)
    refs = [a.last_error.remote(b, barrier), b.last_error.remote(a, barrier)]
    errors = [error for error in moo.get(refs, timeout=60) if error is not None]
    assert errors  # the error of one may have ended the cycle for the other
    for error in errors:
        assert isinstance(error, moo.DeadlockError)
        assert error.delivered is False
        assert error.cycle == ("Feeder", "Feeder")
        assert "max_pending" in str(error)
        assert "Feeder -> Feeder -> Feeder" in str(error)
    assert eventually(lambda: min(a.meals(), b.meals()) >= SMALL)


def test_many_calls_too_many_are_told_soon(spawn: Any) -> None:
    a, b, barrier = spawn(Feeder), spawn(Feeder), spawn(Barrier, 2)
    refs = [x.feed.remote([y], 100, barrier) for x, y in ((a, b), (b, a))]
    start = time.monotonic()
    for names in moo.get(refs, timeout=60):
        assert set(names) <= {"DeadlockError", "NoneType"}
    assert time.monotonic() - start < 30.0
    assert eventually(lambda: min(a.meals(), b.meals()) >= SMALL)


def test_a_cycle_of_three_full_mailboxes_is_told(spawn: Any) -> None:
    ring, barrier = [spawn(Feeder) for _ in range(3)], spawn(Barrier, 3)
    following = [*ring[1:], ring[0]]
    refs = [x.last_error.remote(y, barrier) for x, y in zip(ring, following)]
    found = moo.get(refs, timeout=60)
    errors = [error for error in found if error is not None]
    assert errors  # one may have ended the cycle for the others
    for error in errors:
        assert isinstance(error, moo.DeadlockError)
        assert error.cycle == ("Feeder",) * 3


def test_a_cycle_of_a_full_mailbox_and_a_call_is_told(spawn: Any) -> None:
    a, b, barrier = spawn(Feeder), spawn(Feeder), spawn(Barrier, 2)
    full, asked = a.last_error.remote(b, barrier), b.ask.remote(a, barrier)
    errors = [full.get(timeout=60), asked.exception(timeout=60)]
    assert any(isinstance(error, moo.DeadlockError) for error in errors)
    assert [a.eat(), b.eat()] == [None, None]


def test_tells_that_can_never_be_sent_are_told_of(spawn: Any, capfd: Any) -> None:
    a, b, barrier = spawn(Feeder), spawn(Feeder), spawn(Barrier, 2)
    refs = [x.tell.remote([y], 10, barrier) for x, y in ((a, b), (b, a))]
    assert moo.get(refs, timeout=60) == [None, None]
    assert eventually(lambda: "is lost: Feeder has 3 calls" in capfd.readouterr().err)


@moo.actor(max_pending=SMALL, max_concurrency=1)
class OneAtATime:
    """An async actor whose sync methods run in its one thread."""

    def __init__(self) -> None:
        self.eaten = 0

    async def nap(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.eaten += 1

    async def ask(self, other: Any, barrier: Any) -> None:
        await barrier.arrive.remote()
        while not await barrier.is_complete.remote():
            pass
        await other.eat.remote()

    def eat(self) -> None:
        self.eaten += 1

    def meals(self) -> int:
        return self.eaten

    def feed_itself(self, way: str) -> list[BaseException | None]:
        me = moo.current().handle
        refs = [
            me.eat.remote() if way == "eat" else me.nap.remote(0.01)
            for _ in range(SMALL + 2)
        ]
        return [ref.exception() for ref in refs if ref.done()]


@moo.actor(max_pending=SMALL)
class Mixed(OneAtATime):
    """Its async methods run beside a sync one."""


@pytest.mark.parametrize(
    ("kind", "way"), [(OneAtATime, "eat"), (OneAtATime, "nap"), (Mixed, "eat")]
)
def test_a_sync_method_of_an_async_actor_that_would_wait_for_itself_is_overloaded(
    spawn: Any, kind: Any, way: str
) -> None:
    actor = spawn(kind)
    errors = actor.feed_itself.options(timeout=60.0).remote(way).get()
    assert [type(error) for error in errors] == [moo.Overloaded] * 2
    assert "itself" in str(errors[0])
    assert eventually(lambda: actor.meals() == SMALL)


def test_an_async_method_that_holds_up_all_others_is_part_of_a_cycle(
    spawn: Any,
) -> None:
    feeder, one, barrier = spawn(Feeder), spawn(OneAtATime), spawn(Barrier, 2)
    asked = one.ask.remote(feeder, barrier)
    error = feeder.last_error.remote(one, barrier).get(timeout=60)
    assert isinstance(error, moo.DeadlockError)
    assert error.cycle == ("Feeder", "OneAtATime")
    assert asked.get(timeout=60) is None


def test_async_methods_make_room_while_a_sync_one_waits_for_it(spawn: Any) -> None:
    actor = spawn(Mixed)
    errors = actor.feed_itself.options(timeout=60.0).remote("nap").get()
    assert set(errors) <= {None}
    assert eventually(lambda: actor.meals() == SMALL + 2)


@moo.actor(max_pending=SMALL)
class Served:
    """Has async methods: it eats while it feeds."""

    def __init__(self) -> None:
        self.eaten = 0

    async def eat(self) -> None:
        self.eaten += 1

    def meals(self) -> int:
        return self.eaten

    def feed(self, others: list[Any], meals: int, barrier: Any) -> list[str]:
        _meet(barrier)
        refs = [other.eat.remote() for other in others for _ in range(meals)]
        return [type(ref.exception(timeout=60)).__name__ for ref in refs]


def test_actors_that_eat_while_they_feed_need_no_more_room(spawn: Any) -> None:
    a, b, barrier = spawn(Served), spawn(Served), spawn(Barrier, 2)
    refs = [x.feed.remote([y], 50, barrier) for x, y in ((a, b), (b, a))]
    assert moo.get(refs, timeout=60) == [["NoneType"] * 50] * 2
    assert eventually(lambda: (a.meals(), b.meals()) == (50, 50))


def test_a_mailbox_that_its_actor_empties_slowly_is_no_deadlock(spawn: Any) -> None:
    a, slow = spawn(Feeder), spawn(Feeder)
    slow.eat.tell(1.5)  # for longer than a few probes take
    names = a.feed.remote([slow], 3 * SMALL).get(timeout=60)
    assert set(names) <= {"NoneType"}
    assert eventually(lambda: slow.meals() == 3 * SMALL + 1)


@moo.actor(max_pending=SMALL)
class Slow(Feeder):
    def answer(self, other: Any, seconds: float) -> None:
        """Meanwhile the other one waits for room here, and this one for nothing."""
        time.sleep(seconds)
        other.eat.remote()  # there is room for one

    def starve(self, other: Any) -> list[str]:
        refs = [other.answer.remote(moo.current().handle, 0.3)]
        refs += [other.eat.remote(0.1) for _ in range(2 * SMALL)]
        return [type(ref.exception(timeout=60)).__name__ for ref in refs]


def test_one_that_calls_back_and_goes_on_is_no_deadlock(spawn: Any) -> None:
    a, b = spawn(Slow), spawn(Slow)
    assert a.starve.remote(b).get(timeout=60) == ["NoneType"] * (2 * SMALL + 1)
    assert eventually(lambda: a.meals() == 1)


@moo.actor(max_pending=SMALL)
class Impatient(Feeder):
    """Sends probes all the time."""

    def __init__(self) -> None:
        super().__init__()
        admission._SHORT_S = deadlock._NEXT_PROBE_S = 1e-4

    def poke(self, other: Any) -> None:
        for _ in range(SMALL + 1):  # there is room for all but one
            other.eat.remote()

    def feed_one_that_pokes(self, other: Any) -> list[str]:
        me = moo.current().handle
        refs = [other.eat.remote(), other.poke.remote(me)]
        refs += [other.eat.remote() for _ in range(SMALL - 1)]
        return [type(ref.exception()).__name__ for ref in refs if ref.done()]

    def pass_on(self, other: Any) -> None:
        other.eat.remote(0.001)


def test_room_that_is_being_made_is_no_deadlock(spawn: Any) -> None:
    """The other one waits for room here while its reply, which makes room there, is on
    its way."""
    a, b = spawn(Impatient), spawn(Impatient)
    for _ in range(100):
        names = a.feed_one_that_pokes.remote(b).get(timeout=60)
        assert set(names) <= {"NoneType"}
        b.meals()  # it has ended all that
    assert eventually(lambda: a.meals() == 100 * (SMALL + 1))


def test_full_mailboxes_in_a_row_are_no_deadlock(spawn: Any) -> None:
    first, second = spawn(Impatient), spawn(Impatient)
    refs = [first.pass_on.remote(second) for _ in range(300)]
    assert moo.get(refs, timeout=60) == [None] * 300
    assert eventually(lambda: second.meals() == 300)


@moo.actor(max_pending=SMALL)
class Dropper(Feeder):
    def drop(self, other: Any, barrier: Any) -> list[str]:
        """Calls that are given up where they wait make room."""
        _meet(barrier)
        short = other.eat.options(timeout=0.6)
        refs = [short.remote() for _ in range(SMALL + 1)]
        time.sleep(0.6)
        return [type(ref.exception()).__name__ for ref in refs if ref.done()]


def test_calls_with_deadlines_of_their_own_make_room_by_these(spawn: Any) -> None:
    a, b, barrier = spawn(Dropper), spawn(Dropper), spawn(Barrier, 2)
    refs = [a.drop.remote(b, barrier), b.drop.remote(a, barrier)]
    for names in moo.get(refs, timeout=60):
        assert "CallTimeout" in names
        assert "DeadlockError" not in names
