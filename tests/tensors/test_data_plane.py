# SPDX-License-Identifier: MIT
"""Values between planes: what arrives, what it costs, who sees whose writes."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import random
import signal
from collections.abc import Callable

import numpy as np
import pytest

from mooactor import ActorDied, OutOfMemory
from mooactor.tensors import DataPlane
from tests.conftest import eventually
from tests.marks import slow
from tests.tensors.conftest import only_shm
from tests.tensors.worker import Worker

MB = 1 << 20
TRANSPORTS = ("shm", "tcp", slow("ofi"))


@pytest.mark.parametrize(
    "buffer",
    [
        b"12345678",
        bytearray(b"12345678"),
        memoryview(b"0123456789")[1:9],
        pickle.PickleBuffer(np.arange(4, dtype=np.int16)),
        pickle.PickleBuffer(np.asfortranarray(np.ones((2, 2), np.uint16))),
        np.arange(8, dtype=np.uint8),
    ],
    ids=lambda buffer: type(buffer).__name__,
)
def test_every_kind_of_buffer_is_taken(plane, buffer):
    expected = (
        bytes(buffer.raw())
        if isinstance(buffer, pickle.PickleBuffer)
        else bytes(memoryview(buffer).cast("B"))
    )
    assert bytes(plane.import_(plane.export(buffer, plane.process_id))) == expected


def test_the_lease_ends_with_the_last_user_of_the_memory(plane):
    array = np.frombuffer(
        plane.import_(plane.export(bytes(MB), plane.process_id)), np.uint8
    )
    part = array[10:20].reshape(2, 5)
    del array
    gc.collect()
    assert plane.statistics()["imports"] == 1
    del part
    assert plane.statistics()["imports"] == 0
    assert plane.statistics()["used"] == 0


def test_an_empty_buffer_is_refused_and_nothing_beside_it_is_lent(plane, new_id):
    with pytest.raises(ValueError, match="invalid argument"):
        plane.export(b"", plane.process_id)
    with pytest.raises(ValueError, match="invalid argument"):
        plane.export_all([bytes(MB), bytes(7), b""], new_id())
    assert (plane.statistics()["leases"], plane.statistics()["used"]) == (0, 0)


def test_a_signal_handler_that_raises_at_any_time_breaks_nothing(plane):
    """At most what was under way stays in memory; the plane goes on."""
    chance = random.Random(7)

    def strike(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, strike)
    try:
        for _ in range(40):
            with contextlib.suppress(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, 5e-4))
                while True:
                    plane.import_(plane.export(bytes(MB), plane.process_id))
            sent = chance.randbytes(5000)
            assert bytes(plane.import_(plane.export(sent, plane.process_id))) == sent
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@only_shm  # elsewhere the receiver has its own copy, and holds nothing here
def test_out_of_memory_names_sizes_and_holders(new_plane, worker):
    plane = new_plane(memory_limit=8 * MB)
    for _ in range(3):
        worker.call("keep", plane.export(bytes(2 * MB), worker.id))
    own = plane.empty_buffer(MB)
    with pytest.raises(OutOfMemory) as caught:
        plane.export(bytes(2 * MB), worker.id)
    message = str(caught.value)
    assert "no room for 2.1 MB" in message
    assert "7.34 MB of 8.39 MB are in use" in message
    assert f"process {worker.id:016x} holds 6.29 MB by 3 leases" in message
    assert "this process itself uses 1.05 MB" in message
    worker.call("drop")
    plane.export(bytes(2 * MB), worker.id)  # everything else goes on
    assert len(own) == MB


def test_a_forked_child_gets_one_clear_error(worker):
    assert "forked child" in worker.call("forked_child_says")


def test_others_must_not_be_able_to_enter_the_directory(tmp_path, new_id):
    tmp_path.chmod(0o755)
    with pytest.raises(PermissionError, match="mode 0700"):
        DataPlane(str(tmp_path), new_id(), b"key")


def test_the_directorys_name_may_be_long(tmp_path, new_id):
    deep = tmp_path / ("d" * 120)
    deep.mkdir(mode=0o700)
    plane = DataPlane(str(deep), new_id(), b"key")
    assert bytes(plane.import_(plane.export(b"x", plane.process_id))) == b"x"
    plane.close()


def test_sharing_what_is_shared_copies_nothing(plane, worker):
    memory = plane.empty_buffer(MB)
    memory[0] = 1
    shared = plane.share(memory)
    memory[0] = 2
    assert shared[0] == 1
    assert worker.call("keep", plane.export(shared, worker.id))[0] == 1
    assert plane.statistics()["bytes_copied"] == 0
    assert plane.share(memory)[0] == 2
    assert plane.statistics()["bytes_copied"] == MB


def test_an_error_that_is_kept_can_be_collected_with_what_was_to_be_sent(
    plane: DataPlane, worker: Worker
) -> None:
    """CPython crashes where a memoryview in use is collected in a cycle."""
    plane.peer_lost(worker.id)
    for buffer in (memoryview(bytearray(MB)), pickle.PickleBuffer(bytearray(MB))):
        in_a_cycle(plane.export, buffer, worker.id)
        assert gc.collect()


def in_a_cycle(function: Callable[..., object], *arguments: object) -> None:
    try:
        function(*arguments)
    except ActorDied as error:
        error.itself = error  # type: ignore[attr-defined]


# -- deaths ----------------------------------------------------------------


def test_a_killed_receivers_memory_comes_back_if_a_forked_child_of_it_lives_on(
    plane, victim
):
    victim.call("keep", plane.export(bytes(MB), victim.id))
    plane.export(bytes(MB), victim.id)  # it never looks at this one
    child = victim.call("forked_child_lives_on")
    victim.kill()
    try:
        assert eventually(lambda: plane.statistics()["used"] == 0)
        with pytest.raises(ActorDied, match="is gone"):
            plane.export(bytes(MB), victim.id)
    finally:
        os.kill(child, signal.SIGKILL)


def test_discarding_after_the_owners_death_is_no_error(plane, victim):
    descriptor = victim.call("make", 7, MB, plane.process_id)
    other = victim.call("make", 7, MB, plane.process_id)
    plane.discard(descriptor)
    victim.kill()
    plane.discard(other)
