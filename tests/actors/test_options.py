# SPDX-License-Identifier: MIT
"""Options of calls: ``num_returns``, and the defaults that ``@method`` gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from tests.actors.counter import Counter
from tests.gates import wait_at


@moo.actor
class Splitter(Counter):
    """Returns tuples."""

    def many(self, n: int) -> list[int]:
        return list(range(n))

    def arrays(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        return np.full(n, 1.0), np.full(n, 2.0)

    def held(self, gate: Path) -> tuple[str, str]:
        wait_at(gate)
        return "a", "b"

    def sum_of(self, array: np.ndarray) -> float:
        return float(array.sum())

    @moo.method(priority=5)
    def urgent(self) -> list[str]:
        self.note("urgent")
        return self.notes()


def test_each_value_has_its_own_ref(spawn: Any) -> None:
    splitter = spawn(Splitter)
    a, b = splitter.pair.options(num_returns=2).remote(1, b="two")
    assert (a.get(), b.get()) == (1, "two")
    assert (a.get(), b.get()) == (1, "two")
    refs = splitter.many.options(num_returns=5).remote(5)
    assert moo.get(list(refs)) == [0, 1, 2, 3, 4]
    assert splitter.pair.options(num_returns=2)(3, b=4) == (3, 4)
    (only,) = splitter.many.options(num_returns=1).remote(1)
    assert only.get() == 0
    done, rest = moo.wait(list(refs), num_returns=5)
    assert len(done) == 5 and not rest


def test_each_value_is_passed_on_by_itself(spawn: Any, tmp_path: Path) -> None:
    splitter, other, gate = spawn(Splitter), spawn(Splitter), tmp_path / "gate"
    ones, twos = splitter.arrays.options(num_returns=2).remote(50_000)
    assert other.sum_of(twos) == 100_000.0  # before it has come here
    assert other.sum_of(ones) == 50_000.0  # and after
    late = splitter.held.options(num_returns=2).remote(gate)
    echoes = [other.echo.remote(ref) for ref in late]
    gate.touch()
    assert moo.get(echoes) == ["a", "b"]
    a, b = splitter.pair.options(num_returns=2).remote(1, b=2)
    nested, (found,) = other.echo(b), other.echo([a])
    assert (nested, found.get()) == (2, 1)


def test_another_number_of_values_is_an_error_of_each(spawn: Any) -> None:
    splitter, n = spawn(Splitter), 2
    for ref in splitter.many.options(num_returns=n).remote(3):
        with pytest.raises(ValueError, match=rf"returned 3 values; .*num_returns={n}"):
            ref.get()
    for ref in splitter.add.options(num_returns=n).remote():
        with pytest.raises(ValueError, match="returned a int"):
            ref.get()
    assert splitter.add() == 2


def test_the_end_of_the_call_is_the_end_of_each(spawn: Any) -> None:
    splitter = spawn(Splitter)
    for ref in splitter.fail.options(num_returns=2).remote(KeyError("both")):
        with pytest.raises(KeyError):
            ref.get()
    both = splitter.until_cancelled.options(num_returns=2)
    a, b = both.remote()
    assert b.cancel() and not a.cancel()
    refs = [(a, moo.Cancelled), (b, moo.Cancelled)]
    refs += [(ref, moo.CallTimeout) for ref in both.options(timeout=0.2).remote()]
    last = both.remote()
    for ref, kind in refs:
        assert isinstance(ref.exception(timeout=60), kind)
    moo.kill(splitter)
    for ref in last:
        with pytest.raises(moo.ActorDied):
            ref.get()


def test_a_method_has_a_priority_of_its_own(spawn: Any) -> None:
    splitter = spawn(Splitter)
    splitter.until_queued.options(priority=9).tell(5)
    for i in range(3):
        splitter.note.tell(str(i))
    urgent = splitter.urgent.remote()
    plain = splitter.urgent.options(priority=0).remote()
    assert urgent.get() == ["urgent"]
    assert plain.get() == ["urgent", "0", "1", "2", "urgent"]
