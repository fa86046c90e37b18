# SPDX-License-Identifier: MIT
"""`Group.map`: items spread over a group, results in order, members that die."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from collections import Counter as Tally
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor import actor, method
from tests.conftest import eventually


@actor
class Mapper:
    """Does to items what tests want."""

    def __init__(self, folder: str = "") -> None:
        self.folder = folder
        self.seen: list[Any] = []

    def square(self, x: int) -> int:
        self.seen.append(x)
        return x * x

    async def later(self, x: int) -> int:
        await asyncio.sleep(0.001 * (x % 3))
        return -x

    def nap(self, seconds: float) -> int:
        self.seen.append(seconds)
        time.sleep(seconds)
        return os.getpid()

    def total(self, array: Any) -> float:
        return float(array.sum())

    def odd_only(self, x: int) -> int:
        self.seen.append(x)
        if x % 2 == 0:
            raise ValueError(f"{x} is even")
        return x

    def kill_once(self, x: int) -> int:
        """The first to get item 5 dies of it."""
        path = f"{self.folder}/died"
        if x == 5 and not os.path.exists(path):
            open(path, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    def kill_always(self, x: int) -> int:
        if x == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    def until_cancelled(self, x: int) -> int:
        self._mark("started")
        while not moo.current().cancelled:
            time.sleep(0.001)
        self._mark("cancelled")
        return x

    def _mark(self, what: str) -> None:
        open(f"{self.folder}/{what}-{os.getpid()}", "w").close()

    def what(self) -> list[Any]:
        return self.seen

    def pid(self) -> int:
        return os.getpid()

    @method(timeout=0.2)
    def slow(self, seconds: float) -> None:
        time.sleep(seconds)

    def up_to(self, n: int) -> Iterator[int]:
        yield from range(n)


class Taking(Iterator[int]):
    """Counts how many items were taken."""

    def __init__(self, n: int = 1 << 40) -> None:
        self.taken = 0
        self.n = n

    def __next__(self) -> int:
        if self.taken >= self.n:
            raise StopIteration
        self.taken += 1
        return self.taken - 1


def test_results_come_in_the_order_of_the_items(group: Any) -> None:
    members = group(Mapper, 3)
    assert list(members.map(Mapper.square, range(50))) == [x * x for x in range(50)]
    assert list(members.map(Mapper.later, range(20))) == [-x for x in range(20)]
    assert list(members.square.map(range(3))) == [0, 1, 4]
    assert list(members.map(Mapper.square, [])) == []


def test_results_come_as_they_are_ready_if_order_does_not_matter(group: Any) -> None:
    members = group(Mapper, 2)
    members.call(Mapper.pid).get()
    naps = [0.4, *[0.001] * 8]
    results = members.map(Mapper.nap, naps, ordered=False, in_flight=1)
    assert Tally(results).most_common()[0][1] == 8  # the other one did the rest
    assert [sorted(set(seen)) for seen in members.call(Mapper.what).get()] in (
        [[0.4], [0.001]],
        [[0.001], [0.4]],
    )


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("in_flight", [1, 3])
def test_items_are_taken_as_results_are(
    group: Any, ordered: bool, in_flight: int
) -> None:
    items = Taking()
    ahead = 2 * in_flight
    results = group(Mapper, 2).map(
        Mapper.square, items, ordered=ordered, in_flight=in_flight
    )
    for taken in range(1, 40):
        next(results)
        assert items.taken <= taken + ahead
    assert items.taken == 39 + ahead
    results.close()
    with pytest.raises(StopIteration):
        next(results)


def test_the_first_calls_are_made_at_once(group: Any) -> None:
    members = group(Mapper, 2)
    results = members.map(Mapper.square, range(4))
    assert eventually(lambda: sum(map(len, members.call(Mapper.what).get())) == 4)
    assert list(results) == [0, 1, 4, 9]


def test_a_member_has_at_most_its_share_under_way(group: Any, tmp_path: Any) -> None:
    members = group(Mapper, 2, str(tmp_path))
    results = members.map(Mapper.until_cancelled, itertools.count(), in_flight=2)
    assert list(results._loads().values()) == [2, 2]
    assert moo.stats()["calls_pending"] == 4
    results.close()


def test_an_error_comes_at_its_place_and_ends_the_iteration(group: Any) -> None:
    members = group(Mapper, 2)
    results = members.map(Mapper.odd_only, [1, 3, 5, 6, 7, 9])
    assert [next(results) for _ in range(3)] == [1, 3, 5]
    with pytest.raises(ValueError, match="6 is even") as caught:
        next(results)
    assert "Remote traceback" in caught.value.__notes__[0]
    assert list(results) == []


def test_an_error_of_the_items_comes_after_the_results_before_it(group: Any) -> None:
    def items() -> Iterator[int]:
        yield from range(3)
        raise KeyError("no more")

    results = group(Mapper, 2).map(Mapper.square, items())
    assert [next(results) for _ in range(3)] == [0, 1, 4]
    with pytest.raises(KeyError):
        next(results)
    assert list(results) == []


def test_an_item_that_cannot_be_sent_fails_at_its_place(group: Any) -> None:
    import threading

    results = group(Mapper, 2).map(Mapper.square, [1, threading.Lock()])
    assert next(results) == 1
    with pytest.raises(TypeError, match="pickle"):
        next(results)


@pytest.mark.parametrize("end", ["close", "with", "drop"])
def test_leaving_early_cancels_what_is_under_way(
    group: Any, end: str, tmp_path: Any
) -> None:
    members = group(Mapper, 2, str(tmp_path))
    results = members.map(Mapper.until_cancelled, range(100))
    assert eventually(lambda: len(list(tmp_path.glob("started-*"))) == 2)
    if end == "close":
        results.close()
    elif end == "with":
        with results:
            pass
    del results
    members.call(Mapper.pid).get()  # they are free again
    assert len(list(tmp_path.glob("cancelled-*"))) == 2


def test_refs_among_the_items_hand_over_their_values(group: Any, spawn: Any) -> None:
    members = group(Mapper, 2)
    stored = [moo.put(np.full(50_000, float(i))) for i in range(3)]
    items = [*stored, np.ones(4)]
    assert list(members.map(Mapper.total, items)) == [0.0, 50_000.0, 100_000.0, 4.0]
    pending = [members[0].square.remote(i) for i in range(4)]
    assert list(members.map(Mapper.square, pending)) == [0, 1, 16, 81]


def test_a_map_is_iterated_in_a_coroutine_too(group: Any) -> None:
    members = group(Mapper, 3)

    async def main() -> None:
        got = [x async for x in members.map(Mapper.square, range(30))]
        assert got == [x * x for x in range(30)]
        unordered = members.map(Mapper.later, range(30), ordered=False)
        assert sorted([x async for x in unordered]) == [-x for x in range(29, -1, -1)]
        with pytest.raises(RuntimeError, match="async for"):
            next(members.map(Mapper.nap, [0.05]))
        results = members.map(Mapper.odd_only, [1, 2])
        assert await anext(results) == 1
        with pytest.raises(ValueError, match="even"):
            await anext(results)

    asyncio.run(main())


def test_each_call_has_its_deadline(group: Any) -> None:
    members = group(Mapper, 2)
    with pytest.raises(moo.CallTimeout):
        list(members.map(Mapper.slow, [0.0, 30.0]))
    members = group(Mapper, 2)
    with pytest.raises(moo.CallTimeout):
        list(members.map(Mapper.nap, [0.0, 30.0], timeout=0.2))

    async def main() -> None:
        async for _ in group(Mapper, 2).map(Mapper.nap, [0.0, 30.0], timeout=0.2):
            pass

    with pytest.raises(moo.CallTimeout):
        asyncio.run(main())


def test_the_death_of_a_member_is_the_error_of_its_item(
    group: Any, tmp_path: Any
) -> None:
    members = group(Mapper, 3, str(tmp_path))
    results = members.map(Mapper.kill_once, range(20), in_flight=1)
    assert [next(results) for _ in range(5)] == list(range(5))
    with pytest.raises(moo.ActorDied, match="SIGKILL"):
        next(results)
    assert list(results) == []


def test_with_retries_the_item_of_a_dead_member_goes_to_another(
    group: Any, tmp_path: Any
) -> None:
    members = group(Mapper, 3, str(tmp_path))
    results = members.map(Mapper.kill_once, range(60), retries=1)
    assert list(results) == list(range(60))
    alive = [handle for handle in members if _is_alive(handle)]
    assert len(alive) == 2


def _is_alive(handle: Any) -> bool:
    try:
        handle.pid()
    except moo.ActorDied:
        return False
    return True


def test_retries_are_counted_by_item(group: Any) -> None:
    members = group(Mapper, 4)
    results = members.map(Mapper.kill_always, range(20), retries=2)
    with pytest.raises(moo.ActorDied):
        list(results)
    assert eventually(lambda: sum(map(_is_alive, members)) == 1)


def test_an_item_that_did_not_run_moves_without_retries(group: Any) -> None:
    members = group(Mapper, 2)
    moo.kill(members[0])
    assert list(members.map(Mapper.square, range(20))) == [x * x for x in range(20)]
    assert members[1].what() == list(range(20))


@pytest.fixture
def restarted(session: Any, tmp_path: Any) -> Iterator[Any]:
    """A group whose members come back."""
    restart = moo.Restart(max=3, within=60)
    members = moo.on(Mapper, restart=restart).group(2, str(tmp_path))
    yield members
    for handle in members:
        moo.kill(handle)


def test_a_member_that_was_restarted_takes_part_again(restarted: Any) -> None:
    before = set(restarted.call(Mapper.pid).get())
    results = restarted.map(Mapper.kill_once, itertools.count(), retries=1)
    back = results._members  # which of them gets items
    for x in range(2000):
        assert next(results) == x
        loads = results._loads()
        if x > 5 and all(member.usable() and loads[member] for member in back):
            break
        time.sleep(0.005)
    else:
        raise AssertionError("it got no more items")
    results.close()
    after = set(restarted.call(Mapper.pid).get())
    assert len(after & before) == 1


def test_one_member_that_is_restarted_gets_its_item_again(restarted: Any) -> None:
    results = restarted[:1].map(Mapper.kill_once, range(20), retries=1)
    assert list(results) == list(range(20))


def test_when_all_members_are_dead_the_map_ends_with_that(group: Any) -> None:
    members = group(Mapper, 2)
    for handle in members:
        moo.kill(handle)
    with pytest.raises(moo.ActorDied):
        list(members.map(Mapper.square, range(20), retries=5))


def test_under_random_kills_each_item_has_one_result(group: Any) -> None:
    members = group(Mapper, 4)
    pids = members.call(Mapper.pid).get()
    done = []
    for x in members.map(Mapper.square, range(300), retries=3, ordered=False):
        done.append(x)
        if len(done) in (50, 100, 150):
            os.kill(pids.pop(), signal.SIGKILL)
    assert sorted(done) == [x * x for x in range(300)]


def test_a_map_inside_an_actor(spawn: Any, group: Any) -> None:
    @actor
    class Boss:
        def sum(self, members: Any, n: int) -> int:
            return sum(members.map(Mapper.square, range(n)))

        async def sum_async(self, members: Any, n: int) -> int:
            return sum([x async for x in members.map(Mapper.square, range(n))])

    @actor
    class SyncBoss:
        def sum(self, members: Any, n: int) -> int:
            return sum(members.map(Mapper.square, range(n)))

    members = group(Mapper, 2)
    assert spawn(SyncBoss).sum(members, 10) == 285
    boss = spawn(Boss)
    assert boss.sum(members, 10) == 285
    assert boss.sum_async.remote(members, 10).get() == 285


def test_what_map_cannot_do_is_refused(group: Any, session: Any) -> None:
    members = group(Mapper, 1)
    with pytest.raises(TypeError, match="^items=3 must be an iterable"):
        members.map(Mapper.square, 3)
    with pytest.raises(ValueError, match="^in_flight=0 must be"):
        members.map(Mapper.square, [], in_flight=0)
    with pytest.raises(TypeError, match="^ordered='no' must be"):
        members.map(Mapper.square, [], ordered="no")
    with pytest.raises(ValueError, match="^retries=-1 must be"):
        members.map(Mapper.square, [], retries=-1)
    with pytest.raises(ValueError, match="^timeout=0 must be"):
        members.map(Mapper.square, [], timeout=0)
    with pytest.raises(TypeError, match="generator"):
        members.map(Mapper.up_to, [1])
    with pytest.raises(ValueError, match="no members"):
        moo.on(Mapper).group(0).map(Mapper.square, [1])
