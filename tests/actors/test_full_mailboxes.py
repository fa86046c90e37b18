# SPDX-License-Identifier: MIT
"""Actors that wait for room in a mailbox: those that would for ever are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from mooactor.process import admission, deadlock
from tests.actors.counter import Counter
from tests.conftest import eventually
from tests.gates import wait_at

SMALL = 3


@moo.actor(max_pending=SMALL)
class Feeder:
    """Calls others more often than their mailbox holds."""

    def __init__(self) -> None:
        self.eaten = 0

    def eat(self, gate: Path | None = None) -> None:
        if gate is not None:
            wait_at(gate)
        self.eaten += 1

    def meals(self) -> int:
        return self.eaten

    def feed(self, others: list[Any], meals: int) -> list[str]:
        """The names of the errors of so many calls of each."""
        refs = [other.eat.remote() for other in others for _ in range(meals)]
        return [type(ref.exception()).__name__ for ref in refs if ref.done()]

    def feed_itself(self, meals: int) -> list[BaseException | None]:
        me = moo.current().handle
        refs = [me.eat.remote() for _ in range(meals)]
        return [ref.exception() for ref in refs if ref.done()]

    def tell(self, other: Any, barrier: Any) -> None:
        _meet(barrier)
        for _ in range(10):
            other.eat.tell()

    def last_error(self, other: Any, barrier: Any) -> Any:
        _meet(barrier)
        refs = [other.eat.remote() for _ in range(SMALL + 1)]
        return refs[-1].exception()

    def hasten(self) -> None:
        """Send probes all the time."""
        admission._SHORT_S = deadlock._NEXT_PROBE_S = 1e-4


def _meet(barrier: Any) -> None:
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


def test_a_cycle_of_full_mailboxes_is_told(spawn: Any) -> None:
    size = 3
    ring, barrier = [spawn(Feeder) for _ in range(size)], spawn(Barrier, size)
    following = [*ring[1:], ring[0]]
    refs = [x.last_error.remote(y, barrier) for x, y in zip(ring, following)]
    errors = [error for error in moo.get(refs, timeout=60) if error is not None]
    assert errors  # the error of one may have ended the cycle for the others
    for error in errors:
        assert isinstance(error, moo.DeadlockError)
        assert error.delivered is False
        assert error.cycle == ("Feeder",) * size
        assert "max_pending" in str(error)
        assert " -> ".join(["Feeder"] * (size + 1)) in str(error)
    assert eventually(lambda: min(x.meals() for x in ring) >= SMALL)


def test_tells_that_can_never_be_sent_are_told_of(spawn: Any, capfd: Any) -> None:
    a, b, barrier = spawn(Feeder), spawn(Feeder), spawn(Barrier, 2)
    refs = [x.tell.remote(y, barrier) for x, y in ((a, b), (b, a))]
    assert moo.get(refs, timeout=60) == [None, None]
    assert eventually(lambda: "is lost: Feeder has 3 calls" in capfd.readouterr().err)


@moo.actor(max_pending=SMALL, max_concurrency=1)
class OneAtATime(Feeder):
    """An async actor whose sync methods run in its one thread."""

    async def idle(self) -> None: ...


@pytest.mark.parametrize("kind", [Feeder, OneAtATime])
def test_one_that_would_wait_for_itself_is_overloaded(spawn: Any, kind: Any) -> None:
    actor = spawn(kind)
    errors = actor.feed_itself.options(timeout=60.0).remote(SMALL + 2).get()
    assert [type(error) for error in errors] == [moo.Overloaded] * 2
    assert all(error.delivered is False for error in errors)
    assert "itself" in str(errors[0])
    # Those that ended leave room, also while word of that is on its way.
    for meals in range(SMALL, 40, SMALL):
        assert eventually(lambda meals=meals: actor.meals() == meals)
        assert actor.feed_itself.options(timeout=60.0).remote(SMALL).get() == []


# -- what is no deadlock ---------------------------------------------------


def test_a_mailbox_that_its_actor_empties_slowly_is_none(
    spawn: Any, tmp_path: Path
) -> None:
    a, slow, gate = spawn(Feeder), spawn(Feeder), tmp_path / "gate"
    a.hasten()
    slow.eat.tell(gate)
    fed = a.feed.remote([slow], 3 * SMALL)
    assert fed.state == 0 and not moo.wait([fed], timeout=0.1)[0]  # many probes long
    gate.touch()
    assert set(fed.get(timeout=60)) <= {"NoneType"}
    assert eventually(lambda: slow.meals() == 3 * SMALL + 1)


# -- the caller's side -----------------------------------------------------


def test_at_the_bound_a_raising_actor_raises_overloaded(
    spawn: Any, tmp_path: Path
) -> None:
    @moo.actor(max_pending=3, overflow="raise")
    class Small(Counter):
        pass

    small, gate = spawn(Small), tmp_path / "gate"
    refs = [small.until.remote(gate) for _ in range(3)]
    one_too_many = small.add.remote()
    with pytest.raises(moo.Overloaded) as caught:
        one_too_many.get()
    assert caught.value.delivered is False
    gate.touch()
    moo.get(refs)
    assert small.add() == 1
