# SPDX-License-Identifier: MIT
"""Data that is fetched over a network: its value, its memory, its end."""

from __future__ import annotations

import gc
import os
import random
import select
import signal
from collections.abc import Callable

import numpy as np
import pytest

from mooactor import ActorDied, InternalError, OutOfMemory
from mooactor.tensors import DataPlane
from tests.conftest import eventually
from tests.marks import slow
from tests.processes import stop
from tests.tensors.conftest import break_connections, over
from tests.tensors.worker import Worker

MB = 1 << 20
TRANSPORTS = ("tcp", slow("ofi"))
Workers = Callable[..., Worker]


def bound(plane: DataPlane, *, links: int | None = None) -> bool:
    """Whether nothing is held or under way any more."""
    stats = plane.statistics()
    return not (stats["leases"] or stats["used"] or stats["fetches"]) and (
        links is None
    ) | (stats["links"] == links)


def test_large_data_arrives_as_it_was(new_plane, transport):
    sender, receiver = new_plane(), new_plane()
    sent = np.random.default_rng(1).integers(0, 255, 64 * MB + 3, np.uint8)
    received = receiver.import_(sender.export(sent, receiver.process_id))
    np.testing.assert_array_equal(np.frombuffer(received, np.uint8), sent)
    assert receiver.statistics()[f"fetched_{transport}"] == len(sent)
    assert (sender.statistics()["served_tcp"] >= len(sent)) == (transport == "tcp")
    assert eventually(lambda: sender.statistics()["used"] == 0)


def test_the_value_is_that_of_the_export(plane, worker):
    private = bytearray(b"\x01" * MB)
    shared = plane.empty_buffer(MB)
    shared[:] = b"\x02" * MB
    first = plane.export(private, worker.id)
    second = plane.export(shared, worker.id)
    private[:] = shared[:] = bytes(MB)
    assert worker.call("keep", first) == b"\x01" * 16
    assert worker.call("keep", second) == b"\x02" * 16
    assert plane.statistics()["exports_copied"] == 1


def test_what_is_received_is_private_and_can_be_sent_on_without_a_copy(
    plane, new_worker
):
    worker = new_worker()
    received = plane.import_(worker.call("make", 3, MB, plane.process_id))
    received[0] = 4
    assert worker.call("keep", plane.export(received, worker.id))[:2] == b"\x04\x03"
    received[1] = 5  # after an export: not seen by those who have it
    assert worker.call("read", 1) == 3
    assert plane.statistics()["exports_copied"] == 0


def test_moved_memory_is_freed_once_it_was_fetched(plane, worker):
    memory = plane.empty_buffer(MB)
    memory[0] = 7
    descriptor = plane.export(memory, worker.id, moved=True)
    with pytest.raises(ValueError, match="moved to another process by"):
        plane.export(memory, worker.id)
    del memory
    gc.collect()
    assert plane.statistics()["used"] == MB
    assert worker.call("keep", descriptor)[0] == 7
    assert eventually(lambda: bound(plane))


def test_a_revoked_descriptor_gives_nothing(plane, worker):
    descriptor = plane.export(bytes(MB), worker.id)
    plane.revoke(descriptor)
    assert plane.statistics()["used"] == 0
    with pytest.raises(InternalError, match="fetched or revoked before"):
        worker.call("keep", descriptor)


def test_without_room_that_fetch_fails_and_can_be_begun_again(new_plane, worker):
    plane = new_plane(memory_limit=4 * MB)
    one = plane.begin(worker.call("make", 1, 3 * MB, plane.process_id))
    descriptor = worker.call("make", 2, 3 * MB, plane.process_id)
    with pytest.raises(OutOfMemory, match=r"no room for 3.15 MB"):
        plane.begin(descriptor)
    assert one.result(5)[0] == 1
    small = plane.begin(worker.call("make", 3, 100, plane.process_id))
    assert small.result(5)[0] == 3
    del one, small
    gc.collect()
    assert plane.begin(descriptor).result(5)[0] == 2


def test_a_frozen_sender_is_waited_for_and_a_killed_one_is_not(plane, worker):
    first = plane.begin(worker.call("make", 1, MB, plane.process_id))
    assert first.result(5)[0] == 1
    descriptor = worker.call("make", 1, 64 * MB, plane.process_id)
    stop(worker.pid)
    fetch = plane.begin(descriptor, 9)
    assert not fetch.wait(0.2)
    assert plane.statistics()["fetches"] == 1
    worker.kill()
    assert select.select([plane.finished_fd], [], [], 5)[0]
    assert plane.finished() == [9]
    with pytest.raises(ActorDied, match="died or was cut off"):
        fetch.result(0)
    del first, fetch
    gc.collect()
    assert eventually(lambda: bound(plane, links=0))


def test_a_cancelled_fetch_leaves_nothing_on_either_side(plane, worker):
    for into in (None, bytearray(64 * MB)):
        descriptor = worker.call("make", 1, 64 * MB, plane.process_id)
        stop(worker.pid)
        fetch = plane.begin(descriptor, 9, into)
        fetch.cancel()
        assert plane.finished() == []
        assert plane.statistics()["used"] == 0
        os.kill(worker.pid, signal.SIGCONT)
    assert eventually(lambda: worker.call("statistics")["used"] == 0)
    assert plane.import_(worker.call("make", 2, MB, plane.process_id))[0] == 2


def test_cancelling_at_any_moment_leaves_nothing(plane, worker):
    chance = random.Random(3)
    for _ in range(30):
        descriptor = worker.call("make", 1, 4 * MB, plane.process_id)
        fetch = plane.begin(descriptor)
        fetch.wait(chance.random() * 0.003)
        fetch.cancel()
    del fetch
    gc.collect()
    assert eventually(lambda: bound(plane))
    assert eventually(lambda: worker.call("statistics")["used"] == 0)


@over("tcp")
@pytest.mark.parametrize("connections", [1, 99], ids=["one", "all"])
def test_a_connection_lost_to_the_living_is_made_anew_at_once(
    plane, worker, connections
):
    assert worker.call("keep", plane.export(b"\x01" * MB, worker.id))[0] == 1
    for value in range(20):
        break_connections(connections)
        descriptor = plane.export(bytes([value]) * MB, worker.id)
        assert worker.call("keep", descriptor)[0] == value


@over("tcp")
def test_a_killed_process_is_dead_to_the_next_export(plane, worker):
    plane.export(b"\x01" * MB, worker.id)
    worker.kill()
    assert eventually(lambda: "refused" in plane.route(worker.id)[1])
    for _ in range(2):
        with pytest.raises(ActorDied, match="is gone"):
            plane.export(b"x", worker.id)
    assert bound(plane)


def test_the_word_of_a_death_ends_what_waits_for_it(plane, worker):
    descriptor = worker.call("make", 1, 64 * MB, plane.process_id)
    stop(worker.pid)
    fetch = plane.begin(descriptor)
    plane.peer_lost(worker.id)
    with pytest.raises(ActorDied):
        fetch.result(5)
    with pytest.raises(ActorDied, match="is gone"):
        plane.export(b"x", worker.id)
    os.kill(worker.pid, signal.SIGCONT)


def test_closing_ends_what_is_under_way(new_plane, worker):
    plane = new_plane()
    descriptor = worker.call("make", 1, 64 * MB, plane.process_id)
    stop(worker.pid)
    fetch = plane.begin(descriptor)
    plane.close()
    with pytest.raises(RuntimeError, match="closed"):
        fetch.result(5)
    os.kill(worker.pid, signal.SIGCONT)
    assert eventually(lambda: worker.call("statistics")["used"] == 0)


def test_a_third_process_gets_it_from_the_owner_or_else_from_us(
    new_plane, new_worker, transport
):
    owner = new_plane(transports=["shm", transport])
    middle = new_worker(f"shm,{transport}")
    far = new_worker(transport)
    middle.call("keep", owner.export(b"\x05" * MB, middle.id))
    first, copies = middle.call("pass_on", far.id)
    assert copies == 1  # the owner did not know the third yet, so we copied
    assert far.call("keep", first) == b"\x05" * 16
    assert eventually(lambda: middle.call("pass_on", far.id)[1] == 0)
    second, _ = middle.call("pass_on", far.id)
    middle.call("drop")
    assert far.call("keep", second) == b"\x05" * 16
    assert owner.traffic(far.id)[0] == 2 * MB
