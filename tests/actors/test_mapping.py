# SPDX-License-Identifier: MIT
"""`Group.map`: items spread over a group, results in order, members that die."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from tests.actors.counter import Counter
from tests.conftest import eventually


@moo.actor
class Mapper(Counter):
    """Does to items what tests want."""

    def __init__(self, folder: str = "") -> None:
        super().__init__()
        self.folder = folder

    def square(self, x: int) -> int:
        self.note(x)
        return x * x

    async def later(self, x: int) -> int:
        await asyncio.sleep(0.001 * (x % 3))  # so that they end in another order
        return -x

    def held(self, gate: Path | None) -> str:
        """Hold this member until there is that file, if one is named."""
        self.note(gate)
        return self.until(gate) if gate else ""

    def sum_of(self, array: Any) -> float:
        return float(array.sum())

    def odd_only(self, x: int) -> int:
        if x % 2 == 0:
            raise ValueError(f"{x} is even")
        return x

    def kill_once(self, x: int) -> int:
        """The first to get item 5 dies of it."""
        path = Path(self.folder, "died")
        if x == 5 and not path.exists():
            path.touch()
            self.kill_self()
        return x

    def kill_always(self, x: int) -> int:
        if x == 5:
            self.kill_self()
        return x

    @moo.method(timeout=0.2)
    def hang(self, x: int) -> None:
        threading.Event().wait(600.0 * x)


class Taking(Iterator[int]):
    """Counts how many items were taken."""

    def __init__(self) -> None:
        self.taken = 0

    def __next__(self) -> int:
        self.taken += 1
        return self.taken - 1


def squares(n: int) -> list[int]:
    return [x * x for x in range(n)]


# -- order and bounds ------------------------------------------------------


def test_results_come_in_the_order_of_the_items(group: Any, spawn: Any) -> None:
    @moo.actor
    class Boss:
        def sum(self, members: Any, n: int) -> int:
            return sum(members.map(Mapper.square, range(n)))

    members = group(Mapper, 3)
    assert list(members.map(Mapper.square, range(50))) == squares(50)
    assert list(members.map(Mapper.later, range(20))) == [-x for x in range(20)]
    assert list(members.square.map(range(3))) == [0, 1, 4]
    assert list(members.map(Mapper.square, [])) == []
    assert spawn(Boss).sum(members, 10) == 285


def test_results_come_as_they_are_ready_if_order_does_not_matter(
    group: Any, tmp_path: Path
) -> None:
    members, gate = group(Mapper, 2), tmp_path / "gate"
    items = [gate, *[None] * 8]
    results = members.map(Mapper.held, items, ordered=False, in_flight=1)
    assert [next(results) for _ in range(8)] == [""] * 8  # the other one did these
    gate.touch()
    assert list(results) == ["gate"]
    assert sorted(map(len, members.call(Mapper.notes).get())) == [1, 8]


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("in_flight", [1, 3])
def test_items_are_taken_as_results_are(
    group: Any, ordered: bool, in_flight: int
) -> None:
    members, items, ahead = group(Mapper, 2), Taking(), 2 * in_flight
    results = members.map(Mapper.square, items, ordered=ordered, in_flight=in_flight)
    # The first calls are made at once.
    assert eventually(lambda: sum(map(len, members.call(Mapper.notes).get())) == ahead)
    for taken in range(1, 40):
        next(results)
        assert items.taken == taken + ahead
    results.close()
    with pytest.raises(StopIteration):
        next(results)


@pytest.mark.parametrize("end", ["close", "drop"])
def test_leaving_early_cancels_what_is_under_way(
    group: Any, end: str, tmp_path: Path
) -> None:
    members = group(Mapper, 2)
    begun = (tmp_path / str(i) for i in itertools.count())
    results = members.map(Mapper.until_cancelled, begun, in_flight=2)
    # Each has its share.
    assert list(results._loads().values()) == [2, 2]
    assert moo.stats()["calls_pending"] == 4
    assert eventually(lambda: len(list(tmp_path.iterdir())) == 2)
    if end == "close":
        with results:
            pass
    del results
    # The next one may have begun before it was cancelled, too.
    assert all(set(x) == {"cancelled"} for x in members.call(Mapper.notes).get())


def test_refs_among_the_items_hand_over_their_values(group: Any) -> None:
    members = group(Mapper, 2)
    stored = [moo.put(np.full(50_000, float(i))) for i in range(3)]
    items = [*stored, np.ones(4)]
    assert list(members.map(Mapper.sum_of, items)) == [0.0, 50_000.0, 100_000.0, 4.0]
    pending = [members[0].square.remote(i) for i in range(4)]
    assert list(members.map(Mapper.square, pending)) == [0, 1, 16, 81]


def test_a_map_is_iterated_in_a_coroutine_too(group: Any, tmp_path: Path) -> None:
    members, gate = group(Mapper, 3), tmp_path / "gate"

    async def main() -> None:
        got = [x async for x in members.map(Mapper.square, range(30))]
        assert got == squares(30)
        unordered = members.map(Mapper.later, range(30), ordered=False)
        assert sorted([x async for x in unordered]) == [-x for x in range(29, -1, -1)]
        with pytest.raises(RuntimeError, match="async for"):
            next(members.map(Mapper.held, [gate]))
        gate.touch()
        results = members.map(Mapper.odd_only, [1, 2])
        assert await anext(results) == 1
        with pytest.raises(ValueError, match="even"):
            await anext(results)
        with pytest.raises(moo.CallTimeout):
            async for _ in members.map(Mapper.hang, [1]):
                pass

    asyncio.run(main())
    with pytest.raises(moo.CallTimeout):
        list(group(Mapper, 2).map(Mapper.hang, [1], timeout=0.1))


# -- errors ----------------------------------------------------------------


def test_an_error_comes_at_its_place_and_ends_the_iteration(group: Any) -> None:
    def items() -> Iterator[int]:
        yield from range(3)
        raise KeyError("no more")

    members = group(Mapper, 2)
    results = members.map(Mapper.odd_only, [1, 3, 5, 6, 7, 9])
    assert [next(results) for _ in range(3)] == [1, 3, 5]
    with pytest.raises(ValueError, match="6 is even") as caught:
        next(results)
    assert "Remote traceback" in caught.value.__notes__[0]
    assert list(results) == []
    results = members.map(Mapper.square, items())
    assert [next(results) for _ in range(3)] == [0, 1, 4]
    with pytest.raises(KeyError):
        next(results)
    assert list(results) == []
    results = members.map(Mapper.square, [1, threading.Lock()])
    assert next(results) == 1
    with pytest.raises(TypeError, match="pickle"):
        next(results)


# -- members that die ------------------------------------------------------


def _is_alive(handle: Any) -> bool:
    try:
        handle.pid()
    except moo.ActorDied:
        return False
    return True


def test_without_retries_the_death_of_a_member_is_the_error_of_its_item(
    group: Any, tmp_path: Path
) -> None:
    members = group(Mapper, 3, str(tmp_path))
    results = members.map(Mapper.kill_once, range(20), in_flight=1)
    assert [next(results) for _ in range(5)] == list(range(5))
    with pytest.raises(moo.ActorDied, match="SIGKILL"):
        next(results)
    assert list(results) == []
    assert eventually(lambda: sum(map(_is_alive, members)) == 2)


def test_with_retries_an_item_goes_to_so_many_others(
    group: Any, tmp_path: Path
) -> None:
    members = group(Mapper, 3, str(tmp_path))
    results = members.map(Mapper.kill_once, range(60), retries=1)
    assert list(results) == list(range(60))
    members = group(Mapper, 4)
    results = members.map(Mapper.kill_always, range(20), retries=2)
    with pytest.raises(moo.ActorDied):
        list(results)
    assert eventually(lambda: sum(map(_is_alive, members)) == 1)


def test_an_item_that_did_not_run_moves_without_retries(group: Any) -> None:
    members = group(Mapper, 2)
    moo.kill(members[0])
    assert list(members.map(Mapper.square, range(20))) == squares(20)
    assert members[1].notes() == list(range(20))
    moo.kill(members[1])
    with pytest.raises(moo.ActorDied):
        list(members.map(Mapper.square, range(20), retries=5))


def test_a_member_that_was_restarted_takes_part_again(
    session: Any, tmp_path: Path
) -> None:
    members = moo.on(Mapper, restart=moo.Restart(max=3)).group(2, str(tmp_path))
    before = set(members.call(Mapper.pid).get())
    results = members.map(Mapper.kill_once, itertools.count(), retries=1)
    assert [next(results) for _ in range(10)] == list(range(10))

    def take_part() -> bool:
        next(results)
        loads = results._loads()
        return all(member.usable() and loads[member] for member in results._members)

    assert eventually(take_part)
    results.close()
    assert len(set(members.call(Mapper.pid).get()) & before) == 1
    (tmp_path / "died").unlink()  # with one member alone, it gets its item again
    alone = members[:1].map(Mapper.kill_once, range(20), retries=1)
    assert list(alone) == list(range(20))
    for handle in members:
        moo.kill(handle)
