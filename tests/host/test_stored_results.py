# SPDX-License-Identifier: MIT
"""Results stay on the hosts that made them: what crosses the driver's cable.

The driver is on d, and starts no actors there. Each pattern has a least number of
crossings of its value; beside these, its cable carries less than a hundredth of it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mooactor as moo
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

    def sum_of(self, held: Any) -> list[int]:
        refs = list(held.values()) if isinstance(held, dict) else held
        return self.sum(*moo.get(refs))

    def hold(self, held: Any) -> None:
        self.held = held

    def sum_held(self) -> list[int]:
        return self.sum_of(self.held)

    def ready(self) -> int:
        return 1


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


def drop(cast: Cast) -> None:
    for _ in range(4):
        cast.a.make.remote()
    assert cast.a.ready() == 1


def hand_on_before(cast: Cast) -> None:
    assert cast.b.sum(cast.a.make.remote(5)) == [5]


def hand_on_after(cast: Cast) -> None:
    (ref,) = done(cast.a.make.remote(5))
    assert cast.b.sum(ref) == [5]


def several(cast: Cast) -> None:
    first, second = done(cast.a.make.remote(1), cast.a2.make.remote(2))
    assert cast.b.sum(first, second, cast.b.make.remote(3)) == [1, 2, 3]


def listed_before(cast: Cast) -> None:
    refs = [one.make.remote(i) for i, one in enumerate(cast.group)]
    assert cast.b.sum_of(refs) == [0, 1, 2, 3]


def listed_after(cast: Cast) -> None:
    refs = done(*[one.make.remote(i) for i, one in enumerate(cast.group)])
    assert cast.b.sum_of(refs) == [0, 1, 2, 3]


def in_a_dict(cast: Cast) -> None:
    refs = {i: one.make.remote(i) for i, one in enumerate(cast.group)}
    assert cast.a.sum_of(refs) == [0, 1, 2, 3]


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


def on_its_own_host(cast: Cast) -> None:
    ref = cast.a.make.remote(7)
    assert cast.a.sum(ref) == cast.a2.sum(ref) == [7]
    (ref,) = done(cast.a.make.remote(7))
    assert cast.a.sum(ref) == cast.a2.sum_of([ref]) == [7]


def argument_of_plain_calls(cast: Cast) -> None:
    array = np.full(SIZE, 4, np.uint8)
    refs = [cast.group[i % 4].sum.remote(array) for i in range(8)]
    assert moo.get(refs) == [[4]] * 8


PATTERNS: dict[Callable[[Cast], None], tuple[int, int]] = {
    read: (1, 0),
    read_late: (1, 1),
    wait_only: (0, 0),
    drop: (0, 0),
    hand_on_before: (0, 0),
    hand_on_after: (0, 0),
    several: (0, 0),
    listed_before: (0, 0),
    listed_after: (0, 0),
    in_a_dict: (0, 0),
    held_while_pending: (0, 0),
    streamed: (0, 0),
    to_a_group: (0, 0),
    on_its_own_host: (0, 0),
    argument_of_plain_calls: (0, 2),
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
