# SPDX-License-Identifier: MIT
"""Learner groups whose members are on several hosts: network namespaces a, b and d, of
which d has this process, a broker and the session's home."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from tests.clusters import Cluster, driver_on, lasting_cluster, whole_cluster
from tests.learner.member import Member, Placed, placed

__all__ = ["lasting_cluster", "whole_cluster"]

_numbers = itertools.count()


@pytest.fixture(scope="module")
def _session(lasting_cluster: Cluster) -> Iterator[None]:
    with driver_on(lasting_cluster), moo.init():
        with placed() as make:  # helpers of all kinds are there from now on
            make("abd").call(Member.barrier).get(30)
        yield


@pytest.fixture
def members(_session: None, whole_cluster: Cluster) -> Iterator[Placed]:
    """``members("abd")``, in one session, whose hosts no test breaks."""
    with placed() as make:
        yield make


# -- who is there ----------------------------------------------------------------------


def test_all_know_the_same_ranks_epochs_pids_and_hosts(members: Placed) -> None:
    group = members("adbba")
    pids, hosts = (group.call(method).get() for method in (Member.pid, Member.host))
    assert sorted(hosts) == ["a", "a", "b", "b", "d"]
    states = group.call(Member.state).get()
    assert [state[:2] for state in states] == [(rank, 5) for rank in range(5)]
    assert len({epoch for _, _, epoch in states}) == 1
    for found in group.call(Member.ask, "members").get():
        assert [(one.rank, one.pid, one.host) for one in found] == [
            (rank, pids[rank], hosts[rank]) for rank in range(5)
        ]
    assert [one["hosts"] for one in group.call(Member.ask, "statistics").get()] == [
        3
    ] * 5


def test_the_driver_and_a_group_of_one_are_no_exceptions(members: Placed) -> None:
    with moo.LearnerGroup("alone", min_size=1) as alone:
        assert [(one.pid, one.host) for one in alone.members()] == [(os.getpid(), "d")]
        other = moo.on(Member, host="a").spawn()
        joined = other.join.remote("with the driver", 2)
        with moo.LearnerGroup("with the driver", min_size=2) as group:
            joined.get(30)
            theirs = other.reduce_often.remote(100_000, 3)
            for _ in range(3):
                array = np.full(100_000, 2.0, np.float32)
                group.allreduce(array, op="sum").wait()
                assert array[0] == 3.0
            assert theirs.get(30) == [3.0] * 3
        assert alone.allreduce(np.ones(3), op="sum").result().sum() == 3.0


def test_a_newcomer_on_another_host_enters_at_a_barrier(members: Placed) -> None:
    group = members("ad")
    newcomer = moo.on(Member, host="b").spawn()
    joined = newcomer.join.remote(group[0].ask("name"), 2)
    while group.run.call(_step).get(30)[0] == 2:
        pass
    assert joined.get(30) == 2
    everybody = moo.Group([*group, newcomer])
    assert everybody.call(Member.reduce_often, 1000, 2).get(30) == [[3.0] * 2] * 3


def _step(group: Any) -> int:
    group.allreduce(np.ones(10)).wait()
    group.barrier()
    return int(group.size)


def test_the_others_go_on_when_one_leaves_its_host_alone(members: Placed) -> None:
    group = members("adb", min_size=2)
    refs = [member.reduce_often.remote(1000, 50) for member in group[1:]]
    group[0].leave()
    assert [ref.get(30) for ref in refs] == [[2.0] * 50] * 2
    assert [member.state()[:2] for member in group[1:]] == [(0, 2), (1, 2)]
    again = group[0].join.remote(group[1].ask("name"), 2)
    while moo.get([member.run.remote(_step) for member in group[1:]])[0] == 2:
        pass
    assert again.get(30) == 2


def test_one_process_may_be_in_two_groups(members: Placed) -> None:
    group, name = members("abd"), f"another {next(_numbers)}"

    assert group.run.call(_in_both, name).get(30) == [[3.0, 6.0] * 5] * 3


def _in_both(group: Any, name: str) -> list[float]:
    with moo.LearnerGroup(name, min_size=group.size) as other:
        seen = []
        for _ in range(5):
            one, two = np.ones(100_000, np.float32), np.full(10, 2.0)
            works = group.allreduce(one, op="sum"), other.allreduce(two, op="sum")
            for work in works:
                work.wait()
            seen += [float(one[-1]), float(two[-1])]
        group.barrier()
        return seen


# -- what they do together -------------------------------------------------------------


def _operations(group: Any, elements: int) -> list[Any]:
    """The results of all kinds of operations on numbers that add up exactly."""
    rank, size = group.rank, group.size
    mine = _input(rank, elements)
    summed, sent = mine.copy(), mine.copy()
    group.allreduce(summed, op="sum").wait()
    group.broadcast(sent, root=size - 1).wait()
    gathered = group.all_gather(mine).result()
    rows = np.stack([mine + row for row in range(size)])
    scattered = group.reduce_scatter(rows, op="sum").result()
    group.barrier()
    named = group.broadcast_object({"from": rank} if rank == 1 else None, root=1)
    return [summed, sent, gathered, scattered, named]


def _input(rank: int, elements: int) -> Any:
    return (np.arange(elements) % 1000 + 7 * rank).astype(np.float32)


@pytest.mark.parametrize("elements", [0, 1, 3000, 1_000_003])
def test_each_operation_gives_the_exact_result(members: Placed, elements: int) -> None:
    size = 4
    found = members("abdd").run.call(_operations, elements).get(60)
    inputs = [_input(rank, elements) for rank in range(size)]
    total = np.sum(inputs, axis=0, dtype=np.float32)
    for rank, (summed, sent, gathered, scattered, named) in enumerate(found):
        np.testing.assert_array_equal(summed, total)
        np.testing.assert_array_equal(sent, inputs[size - 1])
        np.testing.assert_array_equal(gathered, np.stack(inputs))
        np.testing.assert_array_equal(scattered, total + size * rank)
        assert named == {"from": 1}


def test_random_numbers_give_the_same_bits_on_all_hosts(members: Placed) -> None:
    group = members("abd")
    for dtype in ("float32", "float16"):
        results = group.call(Member.reduce, [5, 70_000], dtype, "mean").get(30)
        assert results.count(results[0]) == 3


# -- losses ----------------------------------------------------------------------------


@pytest.mark.parametrize("elements", [10, 1_000_000])
def test_a_killed_member_is_named_to_all_and_they_go_on(
    members: Placed, elements: int
) -> None:
    group = members("abda", min_size=1)
    pids = group.call(Member.pid).get()
    for victim in (1, 2, 0):  # ranks of the four, the three, the two
        epoch = group[-1].ask("epoch")
        refs = [member.reduce_until_lost.remote(elements) for member in group]
        os.kill(pids.pop(victim), signal.SIGKILL)
        with pytest.raises(moo.ActorDied):
            refs.pop(victim).get(30)
        seen = [ref.get(30) for ref in refs]
        assert {(rank, where) for _, rank, where in seen} == {(victim, epoch)}
        assert len({count for count, *_ in seen}) == 1
        group = moo.Group([h for rank, h in enumerate(group) if rank != victim])
        sums = group.call(Member.reduce_often, elements, 3).get(30)
        assert sums == [[float(len(group))] * 3] * len(group)
