# SPDX-License-Identifier: MIT
"""`broadcast_object` and `barrier_async`: what needs no tensor."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

VALUE = {"step": 7, "name": "run", "weights": np.arange(1000.0), "none": None}


def _share(group: Any, root: int) -> Any:
    if group.rank != root:
        return group.broadcast_object(root=root)
    with pytest.raises(TypeError):  # nothing was sent: the others wait for the next
        group.broadcast_object((n for n in ()), root)
    return group.broadcast_object(VALUE, root)


@pytest.mark.parametrize("root", [0, 2])
def test_each_member_gets_the_object_that_the_root_gives(
    members: Any, root: int
) -> None:
    for found in members(3).run.call(_share, root).get():
        assert found.keys() == VALUE.keys() and found["step"] == 7
        np.testing.assert_array_equal(found["weights"], VALUE["weights"])


def _nothing_to_reduce(group: Any) -> list[Any]:
    return [group.broadcast_object(value) for value in (None, [], "")]


def test_small_and_empty_objects_are_objects_too(members: Any) -> None:
    assert members(2).run.call(_nothing_to_reduce).get() == [[None, [], ""]] * 2


def _barrier(group: Any, how: str, first: bool) -> bool:
    """Whether it had ended before the others came."""
    work = group.barrier_async()
    early = work.done()
    if how == "await":
        asyncio.run(_awaited(work))
    elif how == "start":
        assert work.start().result() is None
    else:
        work.wait()
    assert work.done()
    return bool(early and first)


async def _awaited(work: Any) -> None:
    assert await work is None


@pytest.mark.parametrize("how", ["wait", "start", "await"])
def test_a_barrier_can_be_waited_for_later(members: Any, how: str) -> None:
    group = members(2)
    first = group[0].run.remote(_barrier, how, True)
    assert not first.done()
    assert group[1].run(_barrier, how, False) is False
    assert first.get() is False


def _let_in(group: Any) -> int:
    group.barrier_async().wait()
    return int(group.size)


def test_newcomers_enter_at_such_a_barrier(
    members: Any, medium: Any, spawn: Any
) -> None:
    import mooactor as moo
    from tests.learner.member import Member

    group = members(2)
    newcomer = spawn(moo.on(Member, env=medium))
    joined = newcomer.join.remote(group[0].ask("name"), 2)
    while group.run.call(_let_in).get() == [2, 2]:
        pass
    assert joined.get() == 2
