# SPDX-License-Identifier: MIT
"""GPU memory that one process lends to another: who may, how long, and after a kill.

The processes are real, the driver is `fake_cuda.c`: what is tested is the lending, and
that each call reaches the driver as it should. `test_cuda` needs a GPU.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from mooactor import ActorDied
from tests.conftest import eventually
from tests.tensors.cuda_worker import GpuWorker

MB = 1 << 20
NewProcess = Callable[..., GpuWorker]


@pytest.fixture
def new_process(new_gpu_worker: NewProcess) -> NewProcess:
    return new_gpu_worker


def lent(lender: GpuWorker) -> int:
    found: int = lender.call("pool_now")["lent"]
    return found


def read(
    reader: GpuWorker, lender: GpuWorker, loan: tuple[bytes, bytes], n: int
) -> bytes:
    found: bytes = reader.call("read", lender.id, lender.pid, *loan, n)
    return found


def test_a_buffer_is_used_again_once_it_was_read(lender, reader):
    for value, nbytes in ((1, 1), (2, MB), (3, 5 * MB + 3)):
        loan = lender.call("lend", value, nbytes, reader.id)
        assert read(reader, lender, loan, nbytes) == bytes([value]) * nbytes
    assert eventually(lambda: lent(lender) == 0)
    handles = set()
    for value in range(5):
        loan = lender.call("lend", value, MB, reader.id)
        handles.add(loan[0])
        assert read(reader, lender, loan, 1) == bytes([value])
        assert eventually(lambda: lent(lender) == 0)
    assert len(handles) == 1
    assert lender.call("copies") == 0  # the ticket is sent as it is, every time
    loans = [lender.call("lend", value, MB, reader.id) for value in range(5)]
    assert lent(lender) == 5
    assert len({handle for handle, _ in loans}) == 5
    found = [read(reader, lender, loan, 1) for loan in reversed(loans[1:])]
    assert found == [bytes([value]) for value in reversed(range(1, 5))]
    reader.call("discard", loans[0][1])
    assert eventually(lambda: lent(lender) == 0)


def test_it_is_kept_until_the_readers_copy_is_done(new_process, lender, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    reader = new_process(FAKE_CUDA_GATE=str(gate))
    loan = lender.call("lend", 1, MB, reader.id)
    assert (
        read(reader, lender, loan, 1) == b"\1"
    )  # queued; nobody knows that it is done
    assert reader.call("opened_now")["reading"] == 1
    assert lent(lender) == 1
    with open(gate, "w"):
        pass
    assert eventually(lambda: lent(lender) == 0)
    assert eventually(lambda: reader.call("opened_now")["reading"] == 0)


def test_it_is_kept_while_the_message_can_be_sent_again(lender, reader):
    lender.call("write_message", 4, MB)
    for _ in range(3):
        descriptor = lender.call("send_message", reader.id)
        reader.call("discard", descriptor)
        assert lent(lender) == 1
    lender.call("lend", 5, MB, reader.id)  # forgets the first message
    assert lent(lender) == 1


@pytest.mark.parametrize("when", ["before it looked", "while it reads"])
def test_a_killed_reader_gives_it_back(new_process, lender, tmp_path, when):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    reader = new_process(FAKE_CUDA_GATE=str(gate))
    loan = lender.call("lend", 1, MB, reader.id)
    if when == "while it reads":
        read(reader, lender, loan, 1)
    assert lent(lender) == 1
    reader.kill()
    assert eventually(lambda: lent(lender) == 0)


def test_a_killed_lender_is_named_and_its_memory_let_go(new_process, reader):
    lender, other = new_process(), new_process()
    first, second = (lender.call("lend", value, MB, reader.id) for value in (1, 2))
    assert read(reader, lender, first, 1) == b"\1"
    lender.kill()
    with pytest.raises(ActorDied, match=re.escape("send `tensor.cpu()`")):
        read(reader, lender, second, 1)
    loan = other.call("lend", 3, MB, reader.id)
    assert read(reader, other, loan, 1) == b"\3"
    found = reader.call("opened_now")
    assert (found["owners"], found["open"]) == (1, 1)


def test_what_is_being_read_is_closed_when_that_is_done(new_process, lender, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    reader = new_process(FAKE_CUDA_GATE=str(gate))
    read(reader, lender, lender.call("lend", 1, MB, reader.id), 1)
    reader.call("close_opened")
    assert reader.call("opened_now") == {"owners": 1, "open": 1, "reading": 1}
    with open(gate, "w"):
        pass
    nothing = {"owners": 0, "open": 0, "reading": 0}
    assert eventually(lambda: reader.call("opened_now") == nothing)


def test_the_pool_has_a_limit(new_process, reader):
    lender = new_process(MOOACTOR_CUDA_POOL=str(8 * MB))
    loans = [lender.call("lend", n, 3 * MB, reader.id) for n in range(2)]
    assert lender.call("lend", 2, MB, reader.id) is None
    assert lender.call("pool_now") == {"bytes": 8 * MB, "buffers": 2, "lent": 2}
    read(reader, lender, loans[0], 1)
    assert eventually(lambda: lent(lender) == 1)
    assert lender.call("lend", 2, MB, reader.id) is not None
    full = new_process(MOOACTOR_CUDA_POOL=str(1 << 40), FAKE_CUDA_MEMORY=str(3 * MB))
    assert full.call("lend", 1, 3 * MB, reader.id) is None  # a buffer would be larger
    assert full.call("lend", 1, 2 * MB, reader.id) is not None


# -- who may --------------------------------------------------------------


def answer_of(lender: GpuWorker, reader: GpuWorker) -> tuple[bool | None, list[str]]:
    found: tuple[bool | None, list[str]] = lender.call("answer_of", reader.id)
    return found


def test_it_is_unknown_until_the_receiver_has_tried(lender, reader, directory):
    assert answer_of(lender, reader) == (None, [])
    for _ in range(3):  # several messages carry the probe
        reader.call("answer", lender.id, lender.call("probe"), 0, b"the fake device\0")
    assert answer_of(lender, reader) == (True, ["can open it"])
    assert answer_of(lender, reader)[0] is True
    assert [name for name in os.listdir(directory) if "cuda" in name] == []


def test_a_receiver_that_cannot_open_it_says_why(new_process, lender):
    refused = new_process(FAKE_CUDA_REFUSE="1")
    refused.call("answer", lender.id, lender.call("probe"), 0, b"the fake device\0")
    reason = "cuIpcOpenMemHandle_v2: CUDA_ERROR_MAP_FAILED"
    assert answer_of(lender, refused) == (False, [reason])
    blind = new_process()
    blind.call("answer", lender.id, lender.call("probe"), None, b"the fake device\0")
    assert answer_of(lender, blind)[0] is False
    assert "does not see this GPU" in answer_of(lender, blind)[1]


def test_a_handle_that_means_other_memory_is_no_proof(lender, reader, new_process):
    handle, _ = new_process().call("probe")
    _, pattern = lender.call("probe")
    reader.call("answer", lender.id, (handle, pattern), 0, b"the fake device\0")
    assert answer_of(lender, reader) == (False, ["opened other memory"])


# -- parts ----------------------------------------------------------------


def test_where_there_is_no_driver_nothing_is_lent():
    program = "from mooactor.tensors.cuda.driver import driver; print(driver())"
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("there is a driver here")
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == "None\n"
