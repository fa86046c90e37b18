# SPDX-License-Identifier: MIT
"""A queued operation has its memory until it is done, also if it is dropped."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from tests.learner.member import Member

THREADS, EACH = 8, 100


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_what_threads_queue_and_drop_has_its_memory_until_it_is_done(
    session: Any, frequent_switches: None
) -> None:
    held: list[weakref.ref[Any]] = []
    with moo.LearnerGroup("dropped-works", min_size=1) as group:

        def queue() -> None:
            for _ in range(EACH):
                array = np.ones(50)
                group.allreduce(array)
                held.append(weakref.ref(array))

        threads = [threading.Thread(target=queue) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        gc.collect()
        assert sum(array() is not None for array in held) == THREADS * EACH
        assert group.statistics()["pending"] == THREADS * EACH
        group.barrier()  # which runs them all
        group.barrier()  # and which lets go of their memory
        assert not any(array() is not None for array in held)


def test_who_queues_while_another_thread_leaves_is_told(session: Any) -> None:
    for turn in range(20):
        group = moo.LearnerGroup(f"left-{turn}", min_size=1)
        started, ends = threading.Event(), []

        def queue(group: Any = group, started: Any = started, ends: Any = ends) -> None:
            try:
                while True:
                    group.allreduce(np.ones(3))
                    started.set()
            except RuntimeError as error:
                ends.append(str(error))

        thread = threading.Thread(target=queue)
        thread.start()
        started.wait(20)
        group.leave()
        thread.join()
        assert "has left" in ends[0]


def test_what_was_found_before_a_group_was_left_says_so_after(session: Any) -> None:
    group = moo.LearnerGroup("left-behind", min_size=1)
    member = group._member()
    ended, queued = group.allreduce(np.ones(3)), group.allreduce(np.ones(4))
    ended.wait()
    group.leave()
    group.leave()
    member.leave()
    for act in (member.describe, member.members, member.start, member.obstacle):
        with pytest.raises(RuntimeError, match="has left the learner group"):
            act()
    with pytest.raises(RuntimeError, match="has left the learner group"):
        member.ready(0.0)
    with pytest.raises(RuntimeError, match="has left the learner group"):
        queued.start()
    assert asyncio.run(_awaited(ended)).tolist() == [1.0] * 3
    with pytest.raises(RuntimeError, match="left during allreduce"):
        asyncio.run(_awaited(queued))
    assert member.works == []


async def _await_briefly(work: Any) -> None:
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(_awaited(work), 0.05)


async def _awaited(work: Any) -> Any:
    return await work


def test_a_cancelled_await_is_over_at_once_and_the_operation_is_not(
    session: Any, spawn: Any
) -> None:
    peer = spawn(Member)
    joined = peer.join.remote("cancelled", 2)
    with moo.LearnerGroup("cancelled", min_size=2, timeout=60) as group:
        joined.get()
        array = np.ones(300_000, np.float32)
        work = group.allreduce(array, op="sum")
        asyncio.run(_await_briefly(work))  # and no thread of it is waited for
        assert not work.done()
        assert peer.reduce_often(300_000, 1) == [2.0]
        assert asyncio.run(_awaited(work)) is array
        assert array[-1] == 2.0
