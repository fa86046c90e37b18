# SPDX-License-Identifier: MIT
"""CUDA tensors between processes, on a GPU: values, devices, streams, deaths."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")  # before what needs it

import mooactor as moo  # noqa: E402
from tests.conftest import eventually  # noqa: E402
from tests.processes import stop  # noqa: E402
from tests.tensors.test_codec import (  # noqa: E402
    TORCH_LAYOUTS,
    journey,
    patterned,
    torch_dtypes,
)

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"),
    pytest.mark.timeout(180),  # each process needs seconds to initialise CUDA
]

MB = 1 << 20
GPU = "cuda"
LARGE = (2048, 1024)  # 8 MB of float32: shared where that is possible
CYCLES = 2_000_000_000  # about a second of a GPU's time


@moo.actor
class Mirror:
    """Takes tensors, and says what it saw."""

    def __init__(self) -> None:
        self.kept: Any = None

    def see(self, tensor: Any) -> tuple[str, float]:
        return str(tensor.device), float(tensor.double().sum())

    def back(self, value: Any) -> Any:
        return value

    def change(self, tensor: Any) -> Any:
        tensor += 1
        return tensor

    def keep(self, tensor: Any) -> None:
        self.kept = tensor

    def kept_sum(self) -> float:
        return float(self.kept.double().sum())

    def make(self, value: float) -> Any:
        return torch.full(LARGE, value, device=GPU)

    def stream(self, count: int) -> Iterator[Any]:
        for number in range(count):
            yield torch.full(LARGE, float(number), device=GPU)

    def late(self, value: float) -> Any:
        """Made behind a second of other work on the same stream."""
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(CYCLES)
            return torch.full(LARGE, value, device=GPU)

    def pid(self) -> int:
        return os.getpid()

    def devices(self) -> int:
        return int(torch.cuda.device_count())

    def counts(self) -> dict[str, int]:
        return counts()

    def average(self, name: str, value: float) -> Any:
        """With one other: in place, into `out`, and stacked."""
        with moo.LearnerGroup(name, min_size=2) as group:
            tensor = torch.full((1000, 300), value, device=GPU)
            group.allreduce([tensor.T], op="mean").wait()
            rows = group.all_gather(torch.full((3,), value, device=GPU)).result()
            return tensor.cpu(), rows.cpu(), str(rows.device)


def counts() -> dict[str, int]:
    return dict(moo.stats()["cuda"])


@pytest.fixture(scope="module", autouse=True)
def _initialised() -> None:
    """CUDA, and all that this process keeps for it from its first tensor on: or the
    first test would be said to leave it behind."""
    from mooactor.tensors.cuda import codec as cuda
    from mooactor.tensors.cuda import staging

    there = torch.zeros(1 << 20, dtype=torch.uint8, device=GPU)
    here = torch.zeros(1 << 20, dtype=torch.uint8)
    staging.to_host(there, here)
    staging.to_device(here, there)
    cuda._uuids()
    torch.cuda.synchronize()


@pytest.fixture(params=["shared", "direct", "staged"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which way large tensors go."""
    if request.param == "staged":
        monkeypatch.setenv("MOOACTOR_CUDA_POOL", "0")
    way: str = request.param
    return way


@pytest.fixture
def mirror(way: str) -> Iterator[Any]:
    """An actor to which tensors go that way, and from which they come."""
    with moo.init(transport=["ofi", "tcp"] if way == "direct" else None):
        actor = moo.spawn(Mirror)
        probe = torch.ones(LARGE, device=GPU)
        for _ in range(3):  # both sides make contact, and carry what is to be tried
            actor.back(probe)
        before = counts()[f"sent_{way}"]
        actor.see(probe)
        if counts()[f"sent_{way}"] == before:
            pytest.skip(f"GPU memory cannot be {way} here: {moo.stats()['cuda']}")
        yield actor


# -- layouts, without a runtime --------------------------------------------


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_dtypes_and_layouts_survive():
    base = torch.arange(6.0 * 20 * 30 * 40).view(6, 20, 30, 40).to(GPU)
    for change in TORCH_LAYOUTS.values():
        received, _ = journey(change(base))
        assert received.device == base.device
        assert torch.equal(received, change(base))
    for dtype, count in itertools.product(torch_dtypes(), (0, 1, 100, 100_000)):
        tensor = patterned(dtype, count).to(GPU)
        received, _ = journey(tensor)
        assert (received.device, received.dtype) == (tensor.device, dtype)
        assert torch.equal(received.view(torch.uint8), tensor.view(torch.uint8))


# -- through actors --------------------------------------------------------


def test_arguments_and_results(mirror, way):
    before = counts()
    for value in range(5):
        tensor = torch.full(LARGE, float(value), device=GPU)
        device, total = mirror.see(tensor)
        assert (device, total) == (str(tensor.device), float(value * tensor.numel()))
        assert torch.equal(mirror.back({"t": [tensor.T]})["t"][0], tensor.T)
        assert torch.equal(mirror.make(value), tensor)
    sent = counts()[f"sent_{way}"] - before[f"sent_{way}"]
    got = counts()[f"got_{way}"] - before[f"got_{way}"]
    assert (sent, got) == (10, 10)


def test_values_are_private_to_both_sides(mirror):
    tensor = torch.zeros(LARGE, device=GPU)
    changed = mirror.change(tensor)
    assert tensor.sum() == 0
    assert changed.sum() == tensor.numel()
    mirror.keep(tensor)
    tensor.fill_(5)
    mirror.see(tensor)  # goes through the same buffer
    assert mirror.kept_sum() == 0


@pytest.mark.parametrize("nbytes", [0, 1, 70_000, 8 * MB - 1, 8 * MB, 24 * MB + 7])
def test_sizes_at_the_edges_of_chunks(mirror, nbytes):
    tensor = torch.arange(nbytes, device=GPU).to(torch.uint8)
    for _ in range(2):
        assert torch.equal(mirror.back(tensor), tensor)


def test_streams_and_stored_values(mirror):
    for number, tensor in enumerate(mirror.stream(6)):
        assert (tensor.is_cuda, float(tensor.mean())) == (True, float(number))
    stored = moo.put({"weights": torch.full(LARGE, 3.0, device=GPU)})
    other = moo.spawn(Mirror)
    for actor in (mirror, other):
        assert actor.back(stored)["weights"].double().sum() == 3 * 8 * MB / 4
    assert stored.get()["weights"].is_cuda
    fresh = mirror.make.remote(4.0)  # handed on from its producer
    assert other.see(fresh)[1] == 4.0 * 8 * MB / 4


def test_the_value_is_that_of_the_current_stream(mirror):
    assert float(mirror.late(7.0).mean()) == 7.0
    with torch.cuda.stream(torch.cuda.Stream()):
        tensor = torch.zeros(LARGE, device=GPU)
        torch.cuda._sleep(CYCLES)
        tensor.fill_(9)
        assert mirror.see(tensor)[1] == 9.0 * tensor.numel()
        assert float(mirror.back(tensor).mean()) == 9.0


def test_work_on_other_streams_is_not_waited_for(mirror):
    tensor = torch.ones(LARGE, device=GPU)
    mirror.back(tensor)
    other, done = torch.cuda.Stream(), torch.cuda.Event()
    with torch.cuda.stream(other):
        torch.cuda._sleep(5 * CYCLES)
        done.record()
    mirror.back(tensor)
    assert not done.query()


@pytest.mark.parametrize("way", ["shared"], indirect=True)
def test_buffers_come_back_also_from_the_killed(mirror):
    from mooactor.tensors import public
    from mooactor.tensors.cuda import codec as cuda

    def lent() -> int:
        plane, pool = public.current(), cuda._pool
        assert plane is not None and pool is not None
        pool.sweep(plane)
        return pool.statistics()["lent"]

    tensor = torch.ones(LARGE, device=GPU)
    mirror.see(tensor)
    assert eventually(lambda: lent() == 0)
    stop(mirror.pid())
    waiting = [mirror.see.remote(tensor) for _ in range(3)]
    assert lent() == 3
    moo.kill(mirror)
    assert eventually(lambda: lent() == 0)
    for ref in waiting:
        with pytest.raises(moo.ActorDied):
            ref.get()


@pytest.mark.parametrize("way", ["shared"], indirect=True)
def test_what_a_dead_process_had_sent_is_an_error_not_a_hang(mirror):
    ref = mirror.make.remote(1.0)
    moo.wait([ref], timeout=30)
    moo.kill(mirror)
    with pytest.raises(moo.ActorDied):
        ref.get()


def test_a_receiver_without_a_gpu_says_what_to_do():
    with moo.init():
        blind = moo.on(Mirror, env={"CUDA_VISIBLE_DEVICES": ""}).spawn()
        for shape in ((3,), LARGE):
            with pytest.raises(RuntimeError, match=r"send `tensor.cpu\(\)`"):
                blind.see(torch.ones(shape, device=GPU))
        assert blind.see(torch.ones(3))[0] == "cpu"


def test_an_actor_has_the_gpus_that_it_asked_for():
    with moo.init():
        actor = moo.on(Mirror, num_gpus=1).spawn()
        assert actor.devices() == 1
        assert actor.see(torch.ones(LARGE, device=GPU))[0] == "cuda:0"


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two GPUs here")
def test_a_tensor_arrives_on_its_own_device_whatever_its_number_there():
    with moo.init():
        actor = moo.on(Mirror, env={"CUDA_VISIBLE_DEVICES": "1,0"}).spawn()
        for number in (0, 1):
            tensor = torch.ones(LARGE, device=f"cuda:{number}")
            for _ in range(2):
                assert actor.see(tensor)[0] == f"cuda:{1 - number}"
                assert actor.back(tensor).device == tensor.device
        alone = moo.on(Mirror, env={"CUDA_VISIBLE_DEVICES": "1"}).spawn()
        assert alone.see(torch.ones(LARGE, device="cuda:0"))[0] == "cuda:0"


def test_learner_groups_reduce_tensors_on_a_gpu():
    with moo.init():
        members = moo.on(Mirror).group(2)
        refs = [
            member.average.remote("gpu", float(rank))
            for rank, member in enumerate(members)
        ]
        for mean, rows, device in moo.get(refs):
            assert torch.equal(mean, torch.full((1000, 300), 0.5))
            assert sorted(rows[:, 0].tolist()) == [0.0, 1.0]
            assert device.startswith("cuda")
