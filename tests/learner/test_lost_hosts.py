# SPDX-License-Identifier: MIT
"""Learner groups that lose a host: the others go on without it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import mooactor as moo
from tests.clusters import Cluster, driver_on, lasting_cluster, whole_cluster
from tests.conftest import eventually
from tests.learner.member import Member, Placed, placed

__all__ = ["lasting_cluster", "whole_cluster"]

GONE_S = 4.0  # from a host's loss to the next finished step of the rest


@pytest.fixture
def breakable(whole_cluster: Cluster) -> Iterator[tuple[Placed, Cluster]]:
    """`members`, and the cluster, in a session of the test's own."""
    with driver_on(whole_cluster), moo.init():
        assert eventually(lambda: len(moo.hosts()) == 3)  # one may be back just now
        with placed() as make:
            yield make, whole_cluster


def _survivors(group: moo.Group[Any], lose: Callable[[], object]) -> list[list[float]]:
    """The sums that those of the hosts a and d get, once b is lost while all work."""
    hosts = group.call(Member.host).get()
    rest = [one for one, host in zip(group, hosts) if host != "b"]
    refs = [member.reduce_until_lost.remote(1000) for member in rest]
    for member, host in zip(group, hosts):
        if host == "b":
            member.reduce_until_lost.remote(1000)
    lose()
    seen = moo.get(refs, timeout=30.0)
    assert {rank for _, rank, _ in seen} <= {hosts.index("b"), hosts.index("b") + 1}
    return moo.Group(rest).call(Member.reduce_often, 1000, 3).get(30)


@pytest.mark.parametrize("how", ["the agent is killed", "the cable is cut"])
def test_the_rest_goes_on_without_a_host(
    breakable: tuple[Placed, Cluster], how: str
) -> None:
    members, made = breakable
    group = members("abbd", min_size=1)

    def lose() -> None:
        if how == "the agent is killed":
            made.members["b"].kill()
        else:
            made.network.cut("b")

    assert _survivors(group, lose) == [[2.0] * 3] * 2


def test_a_group_that_finishes_loses_no_step_with_a_host(
    breakable: tuple[Placed, Cluster],
) -> None:
    members, made = breakable
    group = members("abd", min_size=1, on_loss="finish")
    hosts = group.call(Member.host).get()
    refs = [one.reduce_while.remote(5, 100_000) for one in group]
    made.network.cut("b")
    rest = [ref for ref, host in zip(refs, hosts) if host != "b"]
    one, other = moo.get(rest, timeout=30.0)
    assert one == other and one[-1][0] == 2.0
    assert all(total == len(took_part) for total, took_part in one)


@pytest.mark.slow
def test_two_hosts_that_cannot_reach_each_other_do_not_stay_in_one_group(
    breakable: tuple[Placed, Cluster],
) -> None:
    members, made = breakable
    group = members("aabd", min_size=2, on_loss="finish")
    rank = group.call(Member.host).get().index("b")
    out, stay = group[rank], [one for one in group if one is not group[rank]]
    with made.network.swallowing("a", "b"), made.network.swallowing("b", "a"):
        lost = out.reduce_often.remote(1000, 2)
        refs = [member.reduce_often.remote(1000, 2) for member in stay]
        assert moo.get(refs, timeout=50.0) == [[3.0] * 2] * 3
        with pytest.raises(moo.PeerLost, match=f"rank {rank} was taken out") as error:
            lost.get(10.0)
        assert error.value.rank == rank
        with pytest.raises(RuntimeError, match="leave, and join again"):
            out.reduce_often.remote(1000, 1).get(10.0)
    out.leave.remote().get(10.0)
    name = stay[0].ask.remote("name").get(10.0)
    refs = [out.join.remote(name, 2, 4, 60.0, "finish")]
    refs += [member.barrier_until.remote(4) for member in stay]
    assert moo.get(refs, timeout=50.0)[0] == 3
    assert group.call(Member.reduce_often, 1000, 1).get(30) == [[4.0]] * 4


class Trainer:
    """Trains a model in a loop of `moo.Accumulator`."""

    def join(self, name: str) -> None:
        import torch

        model = torch.nn.Linear(5, 1)
        sgd = torch.optim.SGD(model.parameters(), 0.01)
        group = moo.LearnerGroup(name, min_size=3, on_loss="finish")
        self.model = model
        self.accumulator = moo.Accumulator(group, model, sgd, batch=3)

    def train(self, size: int, received: int = 0) -> list[Any]:
        """Until the group has `size` members that have the state, and this one has got
        it so often."""
        import torch

        for step in self.accumulator:
            stats, now = self.accumulator.stats(), self.accumulator.group.size
            if stats["received"] >= received and (now, stats["fetching"]) == (size, 0):
                break
            step.add(self.model(torch.randn(1, 5)).square().mean(), count=1)
        values = [p.tolist() for p in self.model.parameters()]
        return [self.accumulator.version, values, stats["received"]]


@pytest.mark.slow
def test_a_loop_of_an_accumulator_comes_back_when_the_cable_is_mended(
    breakable: tuple[Placed, Cluster],
) -> None:
    pytest.importorskip("torch")
    _, made = breakable
    trainers = [moo.on(Trainer, host=host).spawn() for host in "aabd"]
    out, stay = trainers[2], [*trainers[:2], trainers[3]]
    for one in trainers:
        one.join.remote("comes back")
    before = out.train.remote(4), *(one.train.remote(4) for one in stay)
    received = moo.get(before, timeout=30.0)[0][2]
    with made.network.swallowing("a", "b"), made.network.swallowing("b", "a"):
        lost = out.train.remote(4, received + 1)
        moo.get([one.train.remote(3) for one in stay], timeout=50.0)
    ends = lost, *(one.train.remote(4) for one in stay)
    states = [state[:2] for state in moo.get(ends, timeout=50.0)]
    assert states == [states[0]] * 4


@pytest.mark.quiet
def test_a_lost_host_costs_the_rest_four_seconds(
    breakable: tuple[Placed, Cluster],
) -> None:
    members, made = breakable
    group = members("abd", min_size=1)
    began: list[float] = []

    def lose() -> None:
        began.append(time.monotonic())
        made.network.cut("b")

    _survivors(group, lose)
    assert time.monotonic() - began[0] < GONE_S
