# SPDX-License-Identifier: MIT
"""Signal handlers that come at random points of an operation: they raise, or wait."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.tensors.collective import SharedGroup
from tests.interruptions import Point, at_some_points
from tests.learner.places import LoneAgent


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

    at_some_points(run)


def test_a_handler_may_queue_and_wait_for_what_its_program_waits_for(
    alone: Any,
) -> None:
    def run(point: Point) -> None:
        outs = [staged(0.0) for _ in range(3)]
        works = [alone.allreduce(staged(7.0), op="sum", out=out) for out in outs]

        def act() -> None:
            works[1].wait()
            works.append(alone.allreduce(staged(7.0), op="sum", out=outs[1]))

        point.interrupt(works[0].wait, act)
        for work in works:
            work.wait()
        assert [set(out.flat) for out in outs] == [{7.0}] * 3, point.where
        assert kept(alone) == 0

    at_some_points(run)


def test_an_interrupted_member_has_not_joined() -> None:
    def run(point: Point) -> None:
        agent = LoneAgent()
        segment, bell = agent.memory()
        joined: list[SharedGroup] = []

        def join() -> None:
            joined.append(SharedGroup(segment, bell, 1, 1, 20.0))

        point.interrupt(join)
        for group in joined:
            group.leave()
        later = SharedGroup(segment, bell, 2, 1, 20.0)
        agent.serve()
        assert later.ready(0.0), point.where  # the other would have to let it in
        assert later.describe().size == 1
        later.leave()
        agent.close()

    at_some_points(run)
