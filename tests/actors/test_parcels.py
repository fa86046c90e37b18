# SPDX-License-Identifier: MIT
"""Constructor arguments and snapshots of any size, past the agent's memory."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from tests.conftest import eventually
from tests.processes import Process

psutil = pytest.importorskip("psutil")

MIB = 1 << 20


@moo.actor
class Keeper:
    """Has an array from its constructor, and keeps it through restarts."""

    def __init__(self, array: np.ndarray, *rest: Any) -> None:
        self.array = array
        self.rest = rest

    def total(self) -> float:
        return float(self.array.sum(dtype=np.float64))

    def fill(self, number: int) -> None:
        self.array[:] = number

    def rests(self) -> tuple[Any, ...]:
        return self.rest

    def crash(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@moo.actor
class Remembers(Keeper):
    """Its snapshot is the array."""

    def __snapshot__(self) -> np.ndarray:
        return self.array

    def __restore__(self, array: np.ndarray) -> None:
        self.array = array


@pytest.fixture
def parcels(session: Any) -> Callable[[], int]:
    """How many of them the agent holds."""
    folder = f"/proc/{Process.agent_of(os.getpid()).pid}/fd"

    def count() -> int:
        targets = [os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder)]
        return sum("mooactor-parcel" in target for target in targets)

    assert eventually(lambda: count() == 0)
    return count


@pytest.mark.parametrize("size", [0, 40_000, 3 * MIB])
def test_arguments_and_snapshots_of_every_size_arrive_and_are_writable(
    spawn: Any, parcels: Callable[[], int], size: int
) -> None:
    array = np.arange(size, dtype=np.uint8)
    policy = moo.Restart(max=9)
    keeper: Any = spawn(
        moo.on(Remembers, restart=policy), array, "x" * size, {"nested": [array]}
    )
    assert keeper.total() == array.sum(dtype=np.float64)
    text, nested = keeper.rests()
    assert text == "x" * size
    assert np.array_equal(nested["nested"][0], array)
    for number in (3, 5):  # a later one replaces it
        keeper.fill(number)
    with pytest.raises(moo.ActorRestarted):
        keeper.crash()
    assert keeper.total() == 5.0 * size
    assert eventually(lambda: parcels() <= 2)
    moo.kill(keeper)
    assert eventually(lambda: parcels() == 0)


def test_the_agent_keeps_one_parcel_for_a_group_and_none_of_its_bytes(
    group: Any, spawn: Any, parcels: Callable[[], int]
) -> None:
    spawn(Keeper, np.zeros(1)).total()
    agent = psutil.Process(Process.agent_of(os.getpid()).pid)
    before = agent.memory_info().rss
    members = moo.on(Keeper, restart=moo.Restart()).group(3, np.ones(64 * MIB, "u1"))
    members[0].fill(7)  # which no other sees, nor its own next life
    assert members.call(Keeper.total).get() == [7 * 64.0 * MIB, *[64.0 * MIB] * 2]
    assert parcels() == 1
    assert agent.memory_info().rss - before < 16 * MIB
    with pytest.raises(moo.ActorRestarted):
        members[0].crash()
    assert members[0].total() == 64.0 * MIB
    for keeper in members:
        moo.kill(keeper)
    assert eventually(lambda: parcels() == 0)
