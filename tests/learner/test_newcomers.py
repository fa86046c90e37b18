# SPDX-License-Identifier: MIT
"""Newcomers enter a group at a barrier; where none succeeds they are told why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mooactor as moo
from tests.conftest import running_session
from tests.learner.member import Member

# Members on hosts of their own that may use nothing but a fabric that is not there.
NO_WAY = {"MOOACTOR_TRANSPORT": "ofi,shm", "MOOACTOR_LIBFABRIC": "/nowhere"}
UNREACHABLE = "no allowed transport leads from rank . to rank ."


def apart(host: str) -> Any:
    return moo.on(Member, env={**NO_WAY, "MOOACTOR_HOST_ID": host}).spawn()


def call_barriers(group: Any, times: int) -> list[str]:
    """How each ended."""
    ends = []
    for _ in range(times):
        try:
            group.barrier()
            ends.append("well")
        except moo.MooError as error:
            ends.append(type(error).__name__)
    return ends


def add_up(group: Any) -> None:
    group.allreduce(np.ones(3, np.float32), op="sum").wait()


@pytest.mark.slow
def test_who_cannot_be_let_in_is_told_why_the_barriers_fail(no_session: None) -> None:
    with running_session():
        old = [apart("a"), apart("b")]
        moo.get([member.join.remote("apart", 2) for member in old])
        ends = [member.run.remote(call_barriers, 20) for member in old]
        newcomer = apart("a")
        with pytest.raises(moo.CallTimeout, match=UNREACHABLE):
            newcomer.join("apart", 2, 0, 5.0)
        assert moo.get(ends) == [["ActorUnavailable"] * 20] * 2
        # and so is one who comes when they have given up calling
        with pytest.raises(moo.CallTimeout, match=UNREACHABLE):
            newcomer.join("apart", 2, 0, 0.3)
        for member in [*old, newcomer]:
            moo.kill(member)


def test_it_is_the_last_barrier_that_counts(
    members: Any, medium: dict[str, str]
) -> None:
    if medium:
        pytest.skip("alone on its host, it does not know how others' barriers end")
    group = members(2)
    name = group[0].ask("name")
    late: Any = moo.spawn(Member)
    try:
        with pytest.raises(
            moo.CallTimeout, match=r"at a barrier, so call group\.barrier"
        ):
            late.join(name, 2, 0, 0.2)
        ends = [group[0].barrier.remote(), group[1].run.remote(add_up)]
        for end in ends:
            with pytest.raises(ValueError, match="disagree"):
                end.get()
        with pytest.raises(
            moo.CallTimeout, match=r"the last barrier failed: .*disagree"
        ):
            late.join(name, 2, 0, 0.2)
        group.call(Member.barrier).get()
        with pytest.raises(
            moo.CallTimeout, match=r"at a barrier, so call group\.barrier"
        ):
            late.join(name, 2, 0, 0.2)
    finally:
        moo.kill(late)
