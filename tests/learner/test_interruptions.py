# SPDX-License-Identifier: MIT
"""Signal handlers that come at any point of an operation: they raise, or wait."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.tensors.collective import SharedGroup, segment_bytes
from tests.interruptions import Point, points


@pytest.fixture(scope="module")
def alone(session: Any) -> Iterator[Any]:
    with moo.LearnerGroup("interrupted", min_size=1, timeout=20.0) as group:
        yield group


def staged(value: float) -> Any:
    """An array that operations work on a copy of."""
    return np.full((3, 5), value).T


def kept(group: Any) -> int:
    """The number of operations of which anything is kept."""
    return len(group._queued.member.works)


def at_each_point(run: Callable[[Point], None]) -> None:
    """Call `run`, which interrupts something, with each point that this has."""
    found = 0
    for point in points():
        run(point)
        found += not point.is_missing
    assert found > 5


def test_an_interrupted_call_is_made_with_its_results_or_not_made(alone: Any) -> None:
    def run(point: Point) -> None:
        source, out = staged(7.0), staged(0.0)
        before = alone.statistics()["operations"]

        def call() -> None:
            alone.allreduce(source, op="sum", out=out).wait()

        point.interrupt(call)
        assert alone.statistics()["pending"] in (0, 1)
        alone.barrier()
        made = alone.statistics()["operations"] - before - 1
        assert (out == (7.0 if made else 0.0)).all(), point.where
        assert made or point.where
        alone.allreduce(np.ones(3)).wait()
        assert kept(alone) == 0, point.where
        memory = weakref.ref(source.base)
        source = None
        gc.collect()
        assert memory() is None, point.where

    at_each_point(run)


def test_a_refused_call_is_forgotten_wherever_it_is_interrupted(session: Any) -> None:
    group = moo.LearnerGroup("refusing", min_size=1)
    member = group._shared
    group.leave()
    group._shared = member  # as a thread has found it, just before

    def call() -> None:
        with pytest.raises(RuntimeError, match="has left"):
            group.allreduce(staged(1.0))

    def run(point: Point) -> None:
        point.interrupt(call)

    at_each_point(run)
    call()
    assert kept(group) == 0


def test_a_handlers_exception_is_not_taken_for_one_of_copying_back(alone: Any) -> None:
    def run(point: Point) -> None:
        outs = [staged(0.0), staged(0.0)]
        first = alone.allreduce([staged(7.0), staged(8.0)], op="sum", out=outs)
        second = alone.allreduce(np.ones(3), op="sum")
        point.interrupt(second.wait)
        first.wait()
        second.wait()
        assert [set(out.flat) for out in outs] == [{7.0}, {8.0}], point.where

    at_each_point(run)


def test_a_handler_may_wait_for_what_its_program_waits_for(alone: Any) -> None:
    def run(point: Point) -> None:
        outs = [staged(0.0) for _ in range(3)]
        works = [alone.allreduce(staged(7.0), op="sum", out=out) for out in outs]

        def wait() -> None:
            works[0].wait()
            works[1].wait()
            works.append(alone.allreduce(staged(7.0), op="sum", out=outs[0]))

        point.interrupt(wait, works[1].wait)
        for work in works:
            work.wait()
        assert [set(out.flat) for out in outs] == [{7.0}] * 3, point.where
        assert kept(alone) == 0

    at_each_point(run)


def test_a_handler_may_queue_what_it_waits_for(alone: Any) -> None:
    def run(point: Point) -> None:
        out, own = staged(0.0), staged(0.0)
        later: list[Any] = []

        def act() -> None:
            alone.allreduce(staged(9.0), op="sum", out=own).wait()
            assert set(own.flat) == {9.0}
            later.append(alone.allreduce(own, op="sum", out=own))

        def call() -> None:
            alone.allreduce(staged(7.0), op="sum", out=out).wait()

        point.interrupt(call, act)
        assert set(out.flat) == {7.0}, point.where
        for work in later:
            work.wait()
        assert kept(alone) == 0

    at_each_point(run)


def test_an_interrupted_member_has_not_joined() -> None:
    def run(point: Point) -> None:
        segment = os.memfd_create("interrupted")
        os.ftruncate(segment, segment_bytes())
        joined: list[SharedGroup] = []

        def join() -> None:
            joined.append(SharedGroup(segment, 1, 1, 20.0))

        point.interrupt(join)
        for group in joined:
            group.leave()
        later = SharedGroup(segment, 2, 1, 20.0)
        os.close(segment)
        assert later.ready(20.0), point.where  # the other would have to let it in
        assert later.describe().size == 1
        later.leave()

    at_each_point(run)
