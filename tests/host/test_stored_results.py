# SPDX-License-Identifier: MIT
"""Results stay on the hosts that made them: what crosses the driver's cable.

The driver is on d, and starts no actors there. Each pattern has a least number of
crossings of its value; beside these, its cable carries less than a hundredth of it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.process.current import current_runtime
from tests.conftest import eventually
from tests.gates import wait_at

SIZE = 8 << 20


@moo.actor
class Maker:
    def make(self, value: int = 1, size: int = SIZE) -> Any:
        return np.full(size, value, np.uint8)

    def make_slowly(self, gate: str) -> Any:
        wait_at(gate)
        return self.make()

    def refs(self, other: Any, n: int) -> Iterator[Any]:
        for i in range(n):
            yield other.make.remote(i + 1)

    def sum(self, *arrays: Any) -> list[int]:
        return [int(array[0]) * len(array) // SIZE for array in arrays]

    def sum_all(self, arrays: Any) -> list[int]:
        return self.sum(*arrays)

    def sum_of(self, held: Any) -> list[int]:
        refs = list(held.values()) if isinstance(held, dict) else held
        return self.sum(*moo.get(refs))

    def hold(self, held: Any) -> None:
        self.held = held

    def sum_held(self) -> list[int]:
        return self.sum_of(self.held)

    def held_refs(self) -> Any:
        return self.held

    def two(self) -> tuple[Any, Any]:
        return self.make(1), self.make(2)

    def pid(self) -> int:
        return os.getpid()

    def used(self) -> int:
        return int(moo.stats()["memory"]["used_bytes"])

    def objects(self) -> int:
        return int(moo.stats()["objects"])

    def revoke_all(self) -> int:
        """End the leases of all that was sent and not asked for."""
        payloads = current_runtime().payloads
        noted = [one for of in payloads.lent._of.values() for one in of]
        left = list(filter(payloads.plane.is_unclaimed, noted))
        payloads.plane.take_back(left)
        return len(left)


class Cast:
    """Actors on the hosts a and b, all of which know each other."""

    def __init__(self, made: Any) -> None:
        self.net = made.network
        place = [moo.on(Maker, host=host) for host in "aabb"]
        self.a, self.a2, self.b, self.b2 = [one.spawn() for one in place]
        self.group = moo.Group([self.a, self.a2, self.b, self.b2])
        for maker in self.group:
            maker.sum(*[other.make(1, 1 << 18) for other in self.group])
            for other in self.group:
                maker.sum(other.make.remote(1, 1 << 18))

    def carried(self, pattern: Callable[[Cast], Any]) -> tuple[float, float]:
        """How often a value came to the driver meanwhile, and left it."""
        before = self.net.received("d"), self.net.sent("d")
        pattern(self)
        after = self.net.received("d"), self.net.sent("d")
        come, gone = (y - x for x, y in zip(before, after, strict=True))
        return come / SIZE, gone / SIZE


def done(*refs: Any) -> list[Any]:
    moo.wait(refs, num_returns=len(refs))
    return list(refs)


def read(cast: Cast) -> None:
    assert cast.a.make(3)[-1] == 3


def read_late(cast: Cast) -> None:
    (ref,) = done(cast.a.make.remote(3))
    assert ref.get()[-1] == 3
    assert cast.b.sum(ref) == [3]  # from here: the copy that was read


def wait_only(cast: Cast) -> None:
    refs = done(*[maker.make.remote() for maker in cast.group])
    assert all(ref.done() and ref.exception() is None for ref in refs)


def hand_on_before(cast: Cast) -> None:
    assert cast.b.sum(cast.a.make.remote(5)) == [5]


def hand_on_after(cast: Cast) -> None:
    (ref,) = done(cast.a.make.remote(5))
    assert cast.b.sum(ref) == [5]


def listed_after(cast: Cast) -> None:
    refs = done(*[one.make.remote(i) for i, one in enumerate(cast.group)])
    assert cast.b.sum_of(refs) == [0, 1, 2, 3]


def held_while_pending(cast: Cast) -> None:
    with tempfile.TemporaryDirectory() as directory:
        gate = Path(directory, "gate")
        ref = cast.a.make_slowly.remote(str(gate))
        cast.b.hold([ref])
        gate.touch()
        done(ref)
    assert cast.b.sum_held() == [1]


def streamed(cast: Cast) -> None:
    for i, ref in enumerate(cast.a.refs(cast.a2, 3)):
        assert cast.b.sum(ref) == [i + 1]


def to_a_group(cast: Cast) -> None:
    ref = cast.a.make.remote(7)
    assert cast.group.call(Maker.sum, ref).get() == [[7]] * 4
    assert cast.group.call(Maker.sum, *done(ref)).get() == [[7]] * 4


def of_a_group(cast: Cast) -> None:
    whole = cast.group.call(Maker.make, 7)
    assert cast.b.sum_all(whole) == [7] * 4
    assert cast.a.sum_all(arrays=done(whole)[0]) == [7] * 4


def argument_for_new_actors(cast: Cast) -> None:
    array = np.full(SIZE, 4, np.uint8)
    new = [moo.on(Maker, host=host).spawn() for host in "abab"]
    assert moo.get([maker.sum.remote(array) for maker in new * 2]) == [[4]] * 8
    for maker in new:
        moo.kill(maker)


def argument_that_changes(cast: Cast) -> None:
    array, refs = np.full(SIZE, 4, np.uint8), []
    shared = moo.empty(SIZE, "uint8")
    shared[:] = 4
    for i in range(4):
        array[0] = shared[0] = i
        refs.append(cast.group[i % 2].sum.remote(array))
        refs.append(cast.group[2].sum.remote(shared))
    assert moo.get(refs) == [[i] for i in range(4) for _ in "ab"]


PATTERNS: dict[Callable[[Cast], None], tuple[int, int]] = {
    read: (1, 0),
    read_late: (1, 1),
    wait_only: (0, 0),
    hand_on_before: (0, 0),
    hand_on_after: (0, 0),
    listed_after: (0, 0),
    held_while_pending: (0, 0),
    streamed: (0, 0),
    to_a_group: (0, 0),
    of_a_group: (0, 0),
    argument_for_new_actors: (0, 2),
    argument_that_changes: (0, 8),
}


@pytest.fixture(scope="module")
def cast(_session_of_hosts: Any) -> Cast:
    return Cast(_session_of_hosts)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.__name__)
def test_the_drivers_cable_carries_what_it_must(cast, pattern):
    come, gone = cast.carried(pattern)
    least_in, least_out = PATTERNS[pattern]
    slack = 0.01 * (1 + least_in + least_out)
    assert least_in <= come <= least_in + slack, (come, gone)
    assert least_out <= gone <= least_out + slack, (come, gone)


# -- lifetimes ---------------------------------------------------------------


@pytest.fixture
def maker(cast: Cast) -> Iterator[Any]:
    """One more, on a, that the test may end."""
    made = moo.on(Maker, host="a", restart=moo.Restart(max=1)).spawn()
    made.make(1, 1 << 18)
    yield made
    moo.kill(made)


def stored(maker: Any, value: int = 1) -> Any:
    """A Ref whose call has ended, and whose data stayed there."""
    (ref,) = done(maker.make.remote(value))
    assert not ref.is_here()
    return ref


def test_a_kill_loses_what_was_not_fetched_wherever_its_refs_are(cast, maker):
    refs = [stored(maker) for _ in range(4)]
    moo.prefetch(refs[0])
    moo.wait(refs[:1], fetch=True)
    cast.b.hold(refs[1:2])

    moo.kill(maker)

    assert refs[0].get()[-1] == 1
    for attempt in (
        refs[2].get,
        cast.b.sum_held,
        lambda: cast.b.sum(refs[3]),
        lambda: moo.get(refs),
    ):
        with pytest.raises(moo.ActorDied) as caught:
            attempt()
        assert caught.value.cause.kind == "killed"
    with pytest.raises(moo.ActorDied, match="its result was not fetched") as caught:
        refs[2].get()
    assert caught.value.delivered is True
    assert isinstance(refs[3].exception(), moo.ActorDied)


def test_a_restart_loses_them_too(cast, maker):
    ref, pid = stored(maker), maker.pid()
    os.kill(pid, signal.SIGKILL)

    assert eventually(lambda: ref.exception() is not None)

    with pytest.raises(moo.ActorRestarted, match="its result was not fetched"):
        ref.get()
    assert maker.make(2)[-1] == 2


def test_a_stop_has_holders_fetch_first(cast, maker):
    kept, lent, dropped = (stored(maker, value) for value in (1, 2, 3))
    cast.b.hold([lent])
    del lent, dropped
    before = cast.net.received("d")

    moo.stop(maker)

    assert kept.is_here()
    assert kept.get()[-1] == 1
    assert cast.b.sum_held() == [2]
    assert cast.b2.sum_of(cast.b.held_refs()) == [2]  # who fetched it owns it now
    assert cast.net.received("d") - before < 1.01 * SIZE


def test_what_is_dropped_is_free_at_its_producer(cast, maker):
    refs = [stored(maker) for _ in range(3)]
    assert maker.used() >= 3 * SIZE
    refs[0].get()
    assert eventually(lambda: maker.used() < 3 * SIZE)  # read: it is here
    refs.clear()
    assert eventually(lambda: maker.used() == 0)
    assert maker.objects() == 0


def test_reading_ahead(cast, maker):
    refs = [stored(maker, value) for value in range(3)]
    moo.prefetch(refs)
    got, rest = moo.wait(refs, num_returns=3, fetch=True, timeout=20)
    assert (got, rest) == (refs, [])
    before = cast.net.received("d")
    assert [int(value[0]) for value in moo.get(refs)] == [0, 1, 2]
    assert cast.net.received("d") - before < SIZE / 100
    late = [maker.make.remote(value) for value in range(3)]
    assert {int(ref.get()[0]) for ref in moo.as_completed(late)} == {0, 1, 2}
    group = moo.Group([maker])
    assert [int(value[0]) for value in group.map(Maker.make, [4, 5, 6])] == [4, 5, 6]
    first, second = maker.two.options(num_returns=2).remote()
    done(first, second)
    assert (int(second.get()[0]), int(first.get()[0])) == (2, 1)
    whole = moo.Group([cast.a, cast.b]).call(Maker.make, 6)
    done(whole)
    assert whole.exception() is None
    assert cast.b.sum(*whole.parts) == [6, 6]
    assert [int(value[0]) for value in whole.get()] == [6, 6]


def test_an_event_loop_awaits_what_is_elsewhere(cast, maker):
    async def main():
        ref, whole = stored_soon(), moo.Group([cast.a, cast.b]).call(Maker.make, 6)
        while not (ref.done() and whole.done()):
            await asyncio.sleep(0.01)
        with pytest.raises(RuntimeError, match="await"):
            ref.get()
        assert (await ref)[-1] == 3
        assert ref.get()[-1] == 3
        assert [int(value[0]) for value in await whole] == [6, 6]
        return [int(v[0]) async for v in cast.group.map(Maker.make, [4, 5, 6, 7, 8])]

    def stored_soon() -> Any:
        return maker.make.remote(3)

    assert asyncio.run(main()) == [4, 5, 6, 7, 8]


def test_leases_that_are_lost_are_made_good_by_the_owner(cast, maker):
    refs = [stored(maker, value) for value in (1, 2)]
    assert maker.revoke_all() == 2
    assert [int(value[0]) for value in moo.get(refs)] == [1, 2]
