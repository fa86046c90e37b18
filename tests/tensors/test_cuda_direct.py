# SPDX-License-Identifier: MIT
"""CUDA tensors read over a fabric: who may, what arrives, and how it ends.

Processes, fabric and reads are real. The driver is `fake_cuda.c`, and what it calls
device memory is registered as the host's; only what a GPU's driver and a network card
do with each other is not tested.
"""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Callable
from pickle import PickleBuffer
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor import ActorDied, ActorUnavailable
from mooactor.tensors import DataPlane, public, tickets
from mooactor.tensors.cuda.direct import WELL
from mooactor.tensors.tickets import Source, Ticket
from tests.conftest import eventually
from tests.gates import wait_at
from tests.tensors.cuda_worker import GpuWorker, digest, patterned

MB = 1 << 20
NewProcess = Callable[..., GpuWorker]
TRANSPORTS = ("ofi,tcp",)


@pytest.fixture
def new_process(new_gpu_worker: NewProcess, fabric: str) -> NewProcess:
    return functools.partial(new_gpu_worker, TEST_TRANSPORTS="ofi,tcp")


def lend(
    lender: GpuWorker, reader: GpuWorker, value: int = 1, nbytes: int = MB
) -> tuple[str, Any, bytes]:
    found: tuple[str, Any, bytes] = lender.call("lend_direct", value, nbytes, reader.id)
    return found


def try_it(lender: GpuWorker, reader: GpuWorker) -> None:
    what, probe, descriptor = lend(lender, reader)
    assert what == "probe"
    reader.call("answer_read_probe", lender.id, probe, descriptor)


def loan(
    lender: GpuWorker, reader: GpuWorker, value: int = 1, nbytes: int = MB
) -> tuple[Source, bytes]:
    what, source, descriptor = lend(lender, reader, value, nbytes)
    assert what == "loan", source
    return source, descriptor


def read(reader: GpuWorker, lender: GpuWorker, lent: Any, nbytes: int = MB) -> bytes:
    found: bytes = reader.call("read_direct", lender.id, *lent, nbytes)
    return found


def held(lender: GpuWorker) -> int:
    found: int = lender.call("pool_now")["lent"]
    return found


# -- what works -----------------------------------------------------------


def test_it_is_tried_first_and_then_lent_again_and_again(lender, reader, directory):
    for _ in range(2):  # until the receiver has said something
        assert lend(lender, reader)[0] == "probe"
    try_it(lender, reader)
    sources = set()
    for value in range(5):
        lent = loan(lender, reader, value)
        sources.add(lent[0])
        assert read(reader, lender, lent) == digest(patterned(value, MB))
        assert eventually(lambda: held(lender) == 0)
    assert len(sources) == 1  # a buffer is registered once
    assert lender.call("route", reader.id) == "ofi"
    assert [name for name in os.listdir(directory) if "direct" in name] == []
    loans = [loan(lender, reader, value) for value in range(4)]
    assert held(lender) == 4
    for value in (2, 0):
        assert read(reader, lender, loans[value]) == digest(patterned(value, MB))
    for value in (1, 3):
        reader.call("discard", loans[value][1])
    assert eventually(lambda: held(lender) == 0)


# -- where it cannot be ---------------------------------------------------


def answered(lender: GpuWorker, reader: GpuWorker, **changes: Any) -> tuple[str, str]:
    """The verdict and its reason, after a probe with these changes."""
    _, probe, descriptor = lend(lender, reader)
    probe = probe._replace(**{k: make(probe) for k, make in changes.items()})
    reader.call("answer_read_probe", lender.id, probe, descriptor)
    what, why, _ = lend(lender, reader)
    return what, why


def test_a_probe_that_fails_costs_nothing_else(new_process, lender, reader):
    def wrong_key(probe: Any) -> Any:
        return probe.source._replace(key=probe.source.key ^ 0x5A5A)

    what, why = answered(lender, reader, source=wrong_key)
    assert what == "staged"
    assert why and why != WELL
    assert lender.call("route", reader.id) == "ofi"
    other = answered(lender, new_process(), pattern=lambda _: bytes(16))
    assert other == ("staged", "read other memory")


# -- sudden ends ----------------------------------------------------------


def test_a_killed_reader_gives_the_buffer_back(lender, reader):
    try_it(lender, reader)
    loan(lender, reader)
    reader.tell("read_direct", lender.id, *loan(lender, reader, 1, 64 * MB), 64 * MB)
    reader.kill()
    assert eventually(lambda: held(lender) == 0)


def test_a_killed_lender_is_an_error_at_once(lender, reader):
    try_it(lender, reader)
    lent = loan(lender, reader)
    lender.kill()
    with pytest.raises(ActorDied, match=r"send `tensor.cpu\(\)`"):
        read(reader, lender, lent)
    assert reader.call("statistics")["fetches"] == 0


# -- through the data plane and actors ------------------------------------


def ticket_of(plane: DataPlane) -> memoryview:
    block = plane.empty_buffer(1)
    block[0] = 0
    tickets.mark(plane, block)
    return block


def test_a_fetch_of_a_ticket_has_nothing_to_fetch(new_plane):
    here, there = new_plane(), new_plane()
    block = ticket_of(here)
    descriptor = here.export(block, there.process_id)
    assert not there.is_remote(descriptor)
    fetch = there.begin(descriptor, 7)
    assert there.finished() == [7]
    assert isinstance(fetch.result(0), Ticket)
    assert here.is_held(block)
    del fetch
    gc.collect()
    assert eventually(lambda: not here.is_held(block))


_kept: dict[int, Any] = {}  # registered memory stays while its plane does


class Lent:
    """An array that is read where it lies; it arrives as the sum of it."""

    def __init__(self, nbytes: int) -> None:
        plane = public.current()
        assert plane is not None
        self.array = _kept[id(plane)] = np.ones(nbytes, np.uint8)
        self.source = tickets.share(plane, self.array.ctypes.data, nbytes)
        self.block = ticket_of(plane)

    def __reduce__(self) -> Any:
        buffer: Any = np.frombuffer(self.block, np.uint8)
        return _sum, (PickleBuffer(buffer), self.source, len(self.array))

    def is_held(self) -> bool:
        plane = public.current()
        assert plane is not None
        return plane.is_held(self.block)


def _sum(ticket: Any, source: Source, nbytes: int) -> int:
    plane = public.current()
    assert plane is not None
    assert isinstance(ticket, Ticket)
    if plane.process_id not in _kept:
        _kept[plane.process_id] = np.zeros(nbytes, np.uint8)
        tickets.share(plane, _kept[plane.process_id].ctypes.data, nbytes)
    into = _kept[plane.process_id]
    ticket.begin(source, 0, into.ctypes.data, nbytes).result(10)
    return int(into.sum())


@moo.actor
class Adder:
    def add(self, lent: Any, *others: Any) -> Any:
        return lent, sum(int(other.sum()) for other in others)

    def wait(self, path: str) -> None:
        wait_at(path)

    def make(self, nbytes: int) -> Any:
        self.made = Lent(nbytes)
        return self.made


def test_one_to_an_actor_that_is_killed_comes_back(fabric, tmp_path):
    with moo.init(transport="ofi"):
        adder, lent = moo.spawn(Adder), Lent(MB)
        adder.wait.remote(str(tmp_path / "never"))
        waiting = adder.add.remote(lent)
        assert lent.is_held()
        moo.kill(adder)
        with pytest.raises(ActorDied):
            waiting.get()
        assert eventually(lambda: not lent.is_held())


def test_where_it_is_demanded_and_not_offered_nothing_starts(fabric, monkeypatch):
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("it may be had here")
    monkeypatch.setenv("MOOACTOR_GPUDIRECT", "1")
    words = "MOOACTOR_GPUDIRECT=1 does not work here: .* offers no memory of GPUs"
    with pytest.raises(ActorUnavailable, match=words):
        moo.init(transport=["ofi", "tcp"])
