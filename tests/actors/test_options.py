# SPDX-License-Identifier: MIT
"""Options of calls: ``num_returns``, and the defaults that ``@method`` gives."""

from __future__ import annotations

import asyncio
import gc
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor import actor, method
from tests.actors.counter import wait_until_queued
from tests.conftest import eventually
from tests.gates import wait_at


@actor
class Splitter:
    """Returns tuples, and keeps a diary."""

    def __init__(self) -> None:
        self.diary: list[str] = []
        self.yielded = 0

    @method
    def pair(self, a: Any, b: Any = None) -> tuple[Any, Any]:
        return a, b

    @method
    def many(self, n: int) -> list[int]:
        return list(range(n))

    @method
    def one(self) -> int:
        return 1

    @method
    def arrays(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        return np.full(n, 1.0), np.full(n, 2.0)

    @method
    def late(self, seconds: float) -> tuple[str, str]:
        self.diary.append("late")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if moo.current().cancelled:
                self.diary.append("cancelled")
                break
            time.sleep(0.001)
        return "a", "b"

    @method
    def deaf(self, seconds: float) -> tuple[str, str]:
        time.sleep(seconds)
        return "a", "b"

    @method
    def held(self, gate: Path) -> tuple[str, str]:
        wait_at(gate)
        return "a", "b"

    @method
    def fail(self) -> tuple[int, int]:
        raise KeyError("both")

    @method
    def total(self, array: np.ndarray) -> float:
        return float(array.sum())

    @method
    def echo(self, value: Any) -> Any:
        return value

    @method(priority=5)
    def urgent(self) -> list[str]:
        self.diary.append("urgent")
        return self.diary

    def until_queued(self, calls: int) -> None:
        wait_until_queued(calls)

    def note(self, what: str) -> None:
        self.diary.append(what)

    def read(self) -> list[str]:
        return self.diary

    @method(stream_window=3)
    def numbers(self) -> Iterator[int]:
        while True:
            self.yielded += 1
            yield self.yielded

    def how_far(self) -> int:
        return self.yielded


def test_each_value_has_its_own_ref(spawn: Any) -> None:
    splitter = spawn(Splitter)
    a, b = splitter.pair.options(num_returns=2).remote(1, "two")
    assert (a.get(), b.get()) == (1, "two")
    assert (a.get(), b.get()) == (1, "two")
    refs = splitter.many.options(num_returns=5).remote(5)
    assert moo.get(list(refs)) == [0, 1, 2, 3, 4]
    assert splitter.pair.options(num_returns=2)(3, 4) == (3, 4)
    (only,) = splitter.many.options(num_returns=1).remote(1)
    assert only.get() == 0
    done, rest = moo.wait(splitter.pair.options(num_returns=2).remote(1), num_returns=2)
    assert len(done) == 2 and not rest


def test_each_value_is_passed_on_by_itself(spawn: Any) -> None:
    splitter, other = spawn(Splitter), spawn(Splitter)
    ones, twos = splitter.arrays.options(num_returns=2).remote(50_000)
    assert other.total(twos) == 100_000.0  # before it has come here
    assert other.total(ones) == 50_000.0  # and after
    late = splitter.late.options(num_returns=2).remote(0.1)
    assert [other.echo.remote(ref).get() for ref in late] == ["a", "b"]
    a, b = splitter.pair.options(num_returns=2).remote(1, 2)
    nested, (found,) = other.echo(b), other.echo([a])
    assert (nested, found.get()) == (2, 1)
    assert pickle.loads(pickle.dumps(b)).get() == 2


@pytest.mark.parametrize("n", [1, 2, 4])
def test_another_number_of_values_is_an_error_of_each(spawn: Any, n: int) -> None:
    splitter = spawn(Splitter)
    for ref in splitter.many.options(num_returns=n).remote(3):
        with pytest.raises(ValueError, match=rf"returned 3 values; .*num_returns={n}"):
            ref.get()
    for ref in splitter.one.options(num_returns=n).remote():
        with pytest.raises(ValueError, match="returned a int"):
            ref.get()
    assert splitter.one() == 1


def test_an_error_of_the_call_is_the_error_of_each(spawn: Any) -> None:
    splitter = spawn(Splitter)
    for ref in splitter.fail.options(num_returns=2).remote():
        with pytest.raises(KeyError):
            ref.get()
    refs = splitter.late.options(num_returns=2).remote(30.0)
    moo.kill(splitter)
    for ref in refs:
        with pytest.raises(moo.ActorDied):
            ref.get()


def test_cancelling_one_cancels_the_call(spawn: Any) -> None:
    splitter = spawn(Splitter)
    a, b = splitter.late.options(num_returns=2).remote(30.0)
    assert b.cancel()
    for ref in (a, b):
        with pytest.raises(moo.Cancelled):
            ref.get()
    assert not a.cancel()
    assert splitter.read() in (["late", "cancelled"], [])


def test_the_deadline_of_the_call_is_that_of_each(spawn: Any) -> None:
    splitter = spawn(Splitter)
    for ref in splitter.deaf.options(num_returns=2, timeout=0.2).remote(30.0):
        with pytest.raises(moo.CallTimeout):
            ref.get()


def test_they_are_awaited_and_given_up_together(spawn: Any, tmp_path: Path) -> None:
    splitter, gate = spawn(Splitter), tmp_path / "gate"

    async def main() -> None:
        a, b = splitter.pair.options(num_returns=2).remote(1, 2)
        assert (await b, await a) == (2, 1)
        first, second = splitter.held.options(num_returns=2).remote(gate)
        waiting = asyncio.ensure_future(second)
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(first, 0.05)
        gate.touch()
        assert await waiting == "b"  # somebody still wanted it
        lone, _ = splitter.late.options(num_returns=2).remote(30.0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(lone, 0.1)
        assert lone.cancelled()

    asyncio.run(main())


def test_dropping_one_frees_its_memory(spawn: Any) -> None:
    splitter = spawn(Splitter)
    n = 1 << 20  # 8 MiB each
    before = _imported()
    refs = list(splitter.arrays.options(num_returns=2).remote(n))
    assert refs[1].get()[0] == 2.0
    assert _imported() - before > 1.5 * 8 * n
    del refs[0]  # never read
    assert eventually(lambda: _imported() - before < 1.5 * 8 * n)
    refs.clear()
    assert eventually(lambda: _imported() == before)


def _imported() -> int:
    gc.collect()
    return int(moo.stats()["memory"]["imported_bytes"])


def test_streams_have_no_number_of_values(spawn: Any) -> None:
    with pytest.raises(TypeError, match="generator"):
        spawn(Splitter).numbers.options(num_returns=2)


def test_a_method_has_a_priority_of_its_own(spawn: Any) -> None:
    splitter = spawn(Splitter)
    splitter.until_queued.options(priority=9).tell(5)
    for i in range(3):
        splitter.note.tell(str(i))
    urgent = splitter.urgent.remote()
    plain = splitter.urgent.options(priority=0).remote()
    assert urgent.get() == ["urgent"]
    assert plain.get() == ["urgent", "0", "1", "2", "urgent"]


def test_a_method_has_a_stream_window_of_its_own(spawn: Any) -> None:
    splitter = spawn(Splitter)
    with splitter.numbers() as stream:
        next(stream)
        assert eventually(lambda: splitter.how_far() >= 3)
        assert splitter.how_far() <= 1 + 3
    with splitter.numbers.options(stream_window=30)() as stream:
        next(stream)
        assert eventually(lambda: splitter.how_far() >= 30)
