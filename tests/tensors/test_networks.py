# SPDX-License-Identifier: MIT
"""Data that is fetched over a network: its value, its memory, its end."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import select
import signal
import threading
from collections.abc import Callable

import numpy as np
import pytest

from mooactor import ActorDied, ActorUnavailable, InternalError, OutOfMemory
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


def test_a_descriptor_is_good_for_one_fetch(plane, worker):
    descriptor = worker.call("make", 7, MB, plane.process_id)
    kept = plane.begin(descriptor)
    again = plane.begin(descriptor)
    assert kept.result(5)[0] == 7
    with pytest.raises(InternalError, match="fetched or revoked before"):
        again.result(5)
    for _ in range(100):  # a request may overtake what gave the lease back
        descriptor = worker.call("make", 7, MB, plane.process_id)
        assert plane.begin(descriptor).result(5)[0] == 7
        with pytest.raises(InternalError, match="fetched or revoked before"):
            plane.begin(descriptor).result(5)


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


def test_tags_of_many_fetches_come_as_they_end(plane, worker):
    fetches = {
        n: plane.begin(worker.call("make", n, 1000 * n, plane.process_id), n)
        for n in range(1, 51)
    }
    missing = set(fetches)
    while missing:
        assert select.select([plane.finished_fd], [], [], 5)[0]
        for tag in plane.finished():
            missing.remove(tag)
            received = fetches.pop(tag).result(0)
            assert received[:1] == bytes([tag])
            assert len(received) == 1000 * tag
            del received
    gc.collect()
    assert eventually(lambda: bound(plane))


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


@pytest.mark.parametrize("into", [False, True], ids=["own", "callers"])
def test_a_cancelled_fetch_leaves_nothing_on_either_side(plane, worker, into):
    descriptor = worker.call("make", 1, 64 * MB, plane.process_id)
    stop(worker.pid)
    fetch = plane.begin(descriptor, 9, bytearray(64 * MB) if into else None)
    fetch.cancel()
    assert plane.finished() == []
    assert plane.statistics()["used"] == 0
    os.kill(worker.pid, signal.SIGCONT)
    assert eventually(lambda: worker.call("statistics")["used"] == 0)
    assert plane.import_(worker.call("make", 2, MB, plane.process_id))[0] == 2


def test_cancelling_at_any_moment_leaves_nothing(plane, worker):
    chance = random.Random(3)
    for _ in range(60):
        descriptor = worker.call("make", 1, 4 * MB, plane.process_id)
        fetch = plane.begin(descriptor)
        fetch.wait(chance.random() * 0.003)
        fetch.cancel()
    del fetch
    gc.collect()
    assert eventually(lambda: bound(plane))
    assert eventually(lambda: worker.call("statistics")["used"] == 0)


def test_a_killed_receivers_leases_end(plane, worker):
    plane.export(bytes(MB), worker.id)
    worker.tell("keep", plane.export(bytes(64 * MB), worker.id))
    worker.kill()
    assert eventually(lambda: bound(plane, links=0))


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
def test_nobody_says_that_the_living_died(plane, worker):
    plane.export(b"\x01" * MB, worker.id)
    for _ in range(200):
        break_connections(1)
        with contextlib.suppress(ActorUnavailable):
            plane.export(b"x", worker.id)


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


def test_a_small_fetch_does_not_wait_for_a_large_one(plane, new_worker):
    worker = new_worker()
    large = plane.begin(worker.call("make", 1, 256 * MB, plane.process_id))
    small = plane.begin(worker.call("make", 2, 1000, plane.process_id))
    assert small.result(5)[0] == 2
    assert large.result(20)[0] == 1


def test_threads_fetch_at_the_same_time(new_plane):
    here, there = new_plane(), new_plane()
    failures: list[BaseException] = []

    def shuttle(seed: int) -> None:
        chance = random.Random(seed)
        try:
            for _ in range(50):
                sent = chance.randbytes(chance.randrange(1, 300_000))
                got = there.import_(here.export(sent, there.process_id))
                assert got == sent
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=shuttle, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    gc.collect()
    assert eventually(lambda: bound(here) and bound(there))


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


def test_a_forked_child_ends_nothing(plane, worker):
    descriptor = worker.call("make", 1, 64 * MB, plane.process_id)
    stop(worker.pid)
    fetch = plane.begin(descriptor)
    child = os.fork()
    if child == 0:
        del fetch
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    os.kill(worker.pid, signal.SIGCONT)
    assert fetch.result(5)[0] == 1


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("victim", ["sender", "receiver"])
def test_a_hundred_kills_at_any_point_leave_nothing(plane, new_worker, victim):
    chance = random.Random(11)
    for _ in range(100):
        worker = new_worker()
        kept = []
        for _ in range(chance.randrange(1, 8)):
            nbytes = chance.choice([1, 70_000, 5 * MB, 40 * MB])
            if victim == "sender":
                descriptor = worker.call("make", 1, nbytes, plane.process_id)
                kept.append(plane.begin(descriptor))
            else:
                worker.tell("keep", plane.export(bytes(nbytes), worker.id))
        if kept and chance.random() < 0.7:
            kept[-1].wait(chance.random() * 0.01)
        worker.kill()
        assert all(fetch.wait(5) for fetch in kept)
        del kept
        gc.collect()
        assert eventually(lambda: bound(plane, links=0))
    assert plane.statistics()["slabs"] <= 3
