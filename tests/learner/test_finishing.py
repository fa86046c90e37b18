# SPDX-License-Identifier: MIT
"""Learner groups with ``on_loss="finish"``: what has begun is done by those that are
left, and `Work.participants` says who they were."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from tests.learner.member import Member


@pytest.mark.parametrize("elements", [3, 300_000])
def test_the_survivors_finish_with_their_own_inputs(
    members: Callable[..., Any], elements: int
) -> None:
    group = members(3, min_size=1, on_loss="finish")
    pids = group.call(Member.pid).get()
    ids = [member.process_id for member in group[0].ask("members")]
    going = [member.reduce_while.remote(5, elements) for member in group]
    os.kill(pids[1], signal.SIGKILL)
    one, other = going[0].get(timeout=30), going[2].get(timeout=30)
    assert isinstance(going[1].exception(timeout=30), moo.ActorDied)
    assert one == other  # the same sums, and the same participants
    for total, took_part in one:
        assert total == len(took_part)
        assert took_part in (ids, [ids[0], ids[2]])
    assert one[-1] == (2.0, [ids[0], ids[2]])


def _lose(group: Any) -> tuple[float, str, float]:
    """After the death of rank 2: a mean into `out`, what a broadcast raises, a mean."""
    rank = group.rank
    inputs, out = np.full(1000, rank, np.float32), np.empty(1000, np.float32)
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    group.allreduce(inputs, op="mean", out=out).wait()
    assert (inputs == rank).all()
    first = float(out[0])
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        group.broadcast(inputs, root=0).wait()
        said = "nothing"
    except moo.PeerLost as lost:
        said = f"rank {lost.rank}"
    group.barrier()
    return first, said, float(group.allreduce(inputs.copy()).result()[0])


def test_a_mean_is_theirs_and_what_names_a_rank_raises(
    members: Callable[..., Any],
) -> None:
    group = members(4, min_size=1, on_loss="finish")
    refs = [member.run.remote(_lose) for member in group]
    for dead in (1, 2):
        assert isinstance(refs[dead].exception(timeout=30), moo.ActorDied)
    assert refs[0].get(timeout=30) == (pytest.approx(4 / 3), "rank 1", 1.5)
    assert refs[3].get(timeout=30) == (pytest.approx(4 / 3), "rank 1", 1.5)


def test_all_members_have_to_want_the_same(members: Callable[..., Any]) -> None:
    group = members(1, on_loss="finish")
    name = group[0].ask("name")
    with pytest.raises(ValueError, match="another on_loss"):
        moo.LearnerGroup(name, min_size=1)
    with pytest.raises(ValueError, match="another on_loss or backend"):
        moo.LearnerGroup(name, min_size=1, on_loss="finish", backend="auto")
    with pytest.raises(ValueError, match="on_loss='stop' must be"):
        moo.LearnerGroup(name, min_size=1, on_loss="stop")  # type: ignore[arg-type]


def test_participants_are_known_in_the_end_only(members: Callable[..., Any]) -> None:
    (one,) = members(1)
    assert one.run(_ask_early) == ("wait for it first", [0])


def _ask_early(group: Any) -> tuple[str, list[int]]:
    work = group.allreduce(np.ones(3, np.float32))
    try:
        said = str(work.participants)
    except RuntimeError as error:
        said = str(error)[-17:]
    work.wait()
    return said, [member.rank for member in work.participants]
