# SPDX-License-Identifier: MIT
from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from tests.conftest import eventually
from tests.learner.member import Member
from tests.processes import Process, stop


def test_ranks_epochs_and_members_are_the_same_for_all(members: Any) -> None:
    group = members(3)
    pids = group.call(Member.pid).get()
    assert [state[0] for state in group.call(Member.state).get()] == [0, 1, 2]
    for found in group.call(Member.ask, "members").get():
        assert [member.rank for member in found] == [0, 1, 2]
        assert [member.pid for member in found] == pids
    assert "rank 1 of 3" in group[1].ask("__repr__")
    assert group[0].ask("statistics")["size"] == 3


def _disagree(group: Any, how: str) -> str:
    odd = group.rank == group.size - 1
    small, other = np.ones(4, np.float32), np.ones(9, np.float32)
    try:
        if how == "size":
            group.allreduce(other if odd else small).wait()
        elif how == "shape":
            group.allreduce(np.ones((2, 2)) if odd else np.ones(4)).wait()
        elif how == "dtype":
            group.allreduce(small.astype(np.float64) if odd else small).wait()
        elif how == "op":
            group.allreduce(small, op="min" if odd else "max").wait()
        elif how == "list":
            group.allreduce([small, small + 1] if odd else [np.ones(8, "f4")]).wait()
        elif how == "types":  # one has a type more than the others
            group.allreduce([small] if odd else [small, other.astype("f8")]).wait()
        elif how == "order":
            both = [small, small.astype(np.int32)]
            group.allreduce(both[::-1] if odd else both, op="sum").wait()
        elif how == "kind":
            group.barrier() if odd else group.allreduce(np.ones(10**6)).wait()
        elif how == "root":
            group.broadcast(small, root=int(odd)).wait()
    except ValueError as error:
        return str(error)
    return "no error"


def test_a_mismatch_is_the_same_clear_error_on_all_ranks(
    members: Any, medium: dict[str, str]
) -> None:
    size = 3
    group = members(size)
    for how in (
        *("size", "shape", "dtype", "op", "list", "types", "order", "kind", "root"),
    ):
        errors = group.run.call(_disagree, how).get()
        texts = {error.partition(": ")[2] for error in errors}
        # Between hosts each may name another member beside the odd one.
        assert len(texts) <= (2 if medium else 1)
        assert all(" called " in text and "rank 2 called" in text for text in texts)
        group.call(Member.barrier).get()  # and all is well again
        sums = group.call(Member.reduce_often, 4, 2).get()
        assert sums == [[float(size)] * 2] * size


@pytest.mark.parametrize("elements", [10, 1_000_000])
def test_a_killed_member_is_named_to_all_others(members: Any, elements: int) -> None:
    group = members(4, min_size=2)
    pids = group.call(Member.pid).get()
    for victim in (1, 2, 0):  # ranks of the four, the three, the two
        epoch = group[-1].ask("epoch")
        refs = [member.reduce_until_lost.remote(elements) for member in group]
        _wait_until_busy(pids)
        os.kill(pids.pop(victim), signal.SIGKILL)
        with pytest.raises(moo.ActorDied):
            refs.pop(victim).get()
        seen = [ref.get() for ref in refs]
        assert {(rank, where) for _, rank, where in seen} == {(victim, epoch)}
        assert len({count for count, *_ in seen}) == 1
        group = moo.Group([h for rank, h in enumerate(group) if rank != victim])
        if len(group) > 1:
            sums = group.call(Member.reduce_often, elements, 3).get()
            assert sums == [[float(len(group))] * 3] * len(group)


def _wait_until_busy(pids: list[int]) -> None:
    """Until each has used some more processor time than now."""
    processes = [Process.of(pid) for pid in pids]
    before = [p.used_s() for p in processes]

    def are_busy() -> bool:
        return all(p.used_s() > b for p, b in zip(processes, before))

    assert eventually(are_busy, 100)


def test_a_stopped_member_is_waited_for(members: Any) -> None:
    group = members(3)
    pid = group[2].pid()
    refs = [member.reduce_often.remote(1000, 300) for member in group[:2]]
    stop(pid)
    try:
        refs.append(group[2].reduce_often.remote(1000, 300))
        assert moo.wait(refs, timeout=0.5)[0] == []
    finally:
        os.kill(pid, signal.SIGCONT)
    assert moo.get(refs) == [[3.0] * 300] * 3


def test_a_newcomer_gets_what_the_others_have(
    members: Any, medium: Any, spawn: Any
) -> None:
    group = members(2)
    name = group[0].ask("name")
    newcomer = spawn(moo.on(Member, env=medium))
    joined = newcomer.join.remote(name, 2)
    while group.run.call(_step).get()[0] == 2:
        pass
    assert joined.get() == 2
    everybody = moo.Group([*group, newcomer])
    assert everybody.run.call(_catch_up).get() == [7.0, 7.0, 7.0]
    states = everybody.call(Member.state).get()
    assert [state[:2] for state in states] == [(0, 3), (1, 3), (2, 3)]
    assert len({state[2] for state in states}) == 1


def _step(group: Any) -> int:
    group.allreduce(np.ones(10)).wait()
    group.barrier()
    return int(group.size)


def _catch_up(group: Any) -> float:
    weights = np.full(1000, 7.0 if group.rank == 0 else 0.0)
    group.broadcast(weights, root=0).wait()
    return float(weights[-1])


def test_the_others_go_on_when_one_leaves(members: Any) -> None:
    group = members(3, min_size=2)
    refs = [member.reduce_often.remote(1000, 50) for member in group[1:]]
    group[0].leave()
    for ref in refs:
        assert ref.get() == [2.0] * 50
    assert [group[i].state()[:2] for i in (1, 2)] == [(0, 2), (1, 2)]
    with pytest.raises(RuntimeError, match="has left"):
        group[0].barrier()
    group[0].leave()


def _gather(group: Any) -> float:
    return float(group.all_gather(np.full(1000, 7.0)).result()[-1, -1])


def _scatter(group: Any) -> float:
    return float(group.reduce_scatter(np.full((group.size, 1000), 7.0)).result()[-1])


@pytest.mark.parametrize("call", [_catch_up, _gather, _scatter])
def test_what_names_a_rank_tells_that_ranks_have_changed(
    members: Any, call: Any
) -> None:
    group = members(3, min_size=2)
    refs = [member.run.remote(call) for member in group[1:]]
    group[0].leave()
    for ref in refs:
        with pytest.raises(moo.PeerLost, match="left") as lost:
            ref.get()
        assert lost.value.rank == 0


def test_below_min_size_the_rest_wait_for_a_newcomer(
    members: Any, medium: Any, spawn: Any
) -> None:
    group = members(2)
    pids = group.call(Member.pid).get()
    ref = group[0].barrier.remote()
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(moo.PeerLost, match="rank 1") as lost:
        ref.get()
    assert lost.value.rank == 1 and lost.value.epoch >= 2
    name = group[0].ask("name")
    ref = group[0].barrier.remote()
    newcomer = spawn(moo.on(Member, env=medium))
    newcomer.join(name, 2)
    newcomer.barrier()
    ref.get()


def test_who_does_not_come_is_named_in_the_timeout(members: Any) -> None:
    group = members(3, timeout=1.5)  # which they must join in, too
    for ref in [member.barrier.remote() for member in group[:2]]:
        with pytest.raises(moo.CallTimeout, match="rank 2"):
            ref.get()
    with pytest.raises(moo.CallTimeout, match="rank 2"):
        group[2].barrier()  # it was part of that operation, too
    group.call(Member.barrier).get()


def test_a_group_that_does_not_form_says_how_many_there_are(spawn: Any) -> None:
    with pytest.raises(moo.CallTimeout, match="1 of 2 members"):
        spawn(Member).join("lonely", 2, timeout=0.2)


def test_another_min_size_is_refused(members: Any, spawn: Any) -> None:
    group = members(2)
    with pytest.raises(ValueError, match="another min_size than 3"):
        spawn(Member).join(group[0].ask("name"), 3)


def test_a_senseless_group_is_refused(session: Any) -> None:
    for min_size, timeout in ((0, 1.0), (1025, 1.0), (1, 0.0)):
        with pytest.raises(ValueError, match=r"^(min_size|timeout)=.* must be"):
            moo.LearnerGroup("senseless", min_size, timeout=timeout)


def test_the_driver_can_be_a_member_and_leaves_nothing(session: Any) -> None:
    for _ in range(3):
        with moo.LearnerGroup("driver", min_size=1) as group:
            array = np.arange(5.0)
            work = group.allreduce(array).start()
            assert work.result() is array and work.done()
            assert array.tolist() == [0, 1, 2, 3, 4]
            assert "rank 0 of 1" in repr(group)
        assert repr(group) == "<LearnerGroup 'driver', left>"


def test_dropping_a_group_leaves_it(session: Any) -> None:
    moo.LearnerGroup("dropped", min_size=1)
    with moo.LearnerGroup("dropped", min_size=1) as group:
        assert group.size == 1
