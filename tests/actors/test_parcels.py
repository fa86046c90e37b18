# SPDX-License-Identifier: MIT
"""Constructor arguments and snapshots of any size, past the agent's memory."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.process import parcel
from tests.conftest import eventually, leaked, resources
from tests.marks import slow
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

    def size(self) -> int:
        return int(self.array.nbytes)

    def fill(self, number: int) -> None:
        self.array[:] = number

    def rests(self) -> tuple[Any, ...]:
        return self.rest

    def crash(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def pid(self) -> int:
        return os.getpid()


@moo.actor
class Remembers(Keeper):
    """Its snapshot is the array."""

    def __snapshot__(self) -> np.ndarray:
        return self.array

    def __restore__(self, array: np.ndarray) -> None:
        self.array = array


@pytest.fixture
def running() -> Iterator[Any]:
    """The agent of a session that is left as it was found."""
    before = resources()
    with moo.init(logs=False):
        yield psutil.Process(Process.agent_of(os.getpid()).pid)
    assert not leaked(before)


def memory_files(process: Any) -> int:
    """How many parcels it holds."""
    fds = os.listdir(f"/proc/{process.pid}/fd")
    targets = [os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in fds]
    return sum("mooactor-parcel" in target for target in targets)


@pytest.mark.slow
@pytest.mark.parametrize(
    "size", [0, slow(1), slow(1000), 40_000, slow(parcel.SMALL_BYTES), 3 * MIB]
)
def test_arguments_of_every_size_arrive_and_are_writable(
    running: Any, size: int
) -> None:
    array = np.arange(size, dtype=np.uint8)
    keeper = moo.spawn(Keeper, array, "x" * size, {"nested": [array[: size // 2]]})
    assert keeper.total() == array.sum(dtype=np.float64)
    text, nested = keeper.rests()
    assert text == "x" * size
    assert np.array_equal(nested["nested"][0], array[: size // 2])
    keeper.fill(3)
    assert keeper.total() == 3 * size


@pytest.mark.slow
def test_the_agent_keeps_one_parcel_for_a_group_and_none_of_its_bytes(
    running: Any,
) -> None:
    moo.spawn(Keeper, np.zeros(1)).total()
    before = running.memory_info().rss
    group = moo.on(Keeper, restart=moo.Restart()).group(4, np.ones(64 * MIB, np.uint8))
    assert group.call(Keeper.total).get() == [64.0 * MIB] * 4
    assert memory_files(running) == 1
    assert running.memory_info().rss - before < 16 * MIB
    for keeper in group:
        moo.kill(keeper)
    assert memory_files(running) == 0


@pytest.mark.slow
def test_what_one_member_writes_no_other_sees_nor_its_own_next_life(
    running: Any,
) -> None:
    again = moo.Restart(max=1)
    group = moo.on(Keeper, restart=again).group(2, np.ones(MIB, np.uint8))
    group[0].fill(7)
    assert group.call(Keeper.total).get() == [7.0 * MIB, 1.0 * MIB]
    with pytest.raises(moo.ActorRestarted):
        group[0].crash()
    assert group.call(Keeper.total).get() == [1.0 * MIB, 1.0 * MIB]


@pytest.mark.slow
def test_snapshots_of_every_size_come_back(running: Any) -> None:
    keeper: Any = moo.on(Remembers, restart=moo.Restart(max=9)).spawn(np.zeros(1))
    for size in (10, 40_000, 3 * MIB):
        array = np.zeros(size, np.uint8)
        moo.kill(keeper)
        keeper = moo.on(Remembers, restart=moo.Restart(max=9)).spawn(array)
        for number in (3, 5):  # a later one replaces it
            keeper.fill(number)
        with pytest.raises(moo.ActorRestarted):
            keeper.crash()
        assert keeper.total() == 5.0 * size
        # the former snapshot is dropped once the next one is there
        assert eventually(lambda: memory_files(running) <= 2)
    moo.kill(keeper)
    assert memory_files(running) == 0


@pytest.mark.slow
def test_a_snapshot_that_cannot_be_stored_is_an_error_of_the_call(
    running: Any,
) -> None:
    @moo.actor
    class Grows:
        def grow(self) -> str:
            # No file may become larger than this, and a parcel is one.
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, hard))
            return "grown"

        def __snapshot__(self) -> np.ndarray:
            return np.ones(4 * MIB, np.uint8)

        def __restore__(self, array: np.ndarray) -> None: ...

    grows = moo.on(Grows, restart=moo.Restart()).spawn()
    with pytest.raises(
        moo.OutOfMemory, match=r"no memory for the snapshot of .*Grows \(4 MiB\)"
    ):
        grows.grow.options(timeout=20)()


def test_arguments_for_which_there_is_no_memory_are_refused_at_the_spawn(
    running: Any,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, hard))
    try:
        with pytest.raises(moo.OutOfMemory, match=r"arguments of Keeper \(2 MiB\)"):
            moo.spawn(Keeper, np.ones(2 * MIB, np.uint8))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_more_than_a_gibibyte_is_an_argument_and_a_snapshot(
    running: Any,
) -> None:
    size = 1200 * MIB
    keeper = moo.on(Remembers, restart=moo.Restart()).spawn(np.zeros(size, np.uint8))
    assert keeper.size.options(timeout=120)() == size
    keeper.fill.options(timeout=120)(1)
    with pytest.raises(moo.ActorRestarted):
        keeper.crash()
    assert keeper.total.options(timeout=120)() == float(size)
    assert running.memory_info().rss < 200 * MIB
    moo.kill(keeper)
    assert eventually(lambda: memory_files(running) == 0)


@pytest.mark.slow
def test_torch_tensors_are_writable_views(running: Any) -> None:
    torch = pytest.importorskip("torch")

    @moo.actor
    class Model:
        def __init__(self, weights: Any) -> None:
            self.weights = weights

        def step(self) -> float:
            self.weights += 1
            return float(self.weights.sum())

    assert moo.spawn(Model, torch.ones(MIB)).step() == 2.0 * MIB
