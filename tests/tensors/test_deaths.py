# SPDX-License-Identifier: MIT
"""Nothing is left after a kill -9 of either side, nor after none."""

from __future__ import annotations

import gc
import os
import random
import signal

import pytest

from mooactor import ActorDied
from mooactor.tensors import plane as plane_module
from tests.conftest import eventually
from tests.marks import slow
from tests.tensors.conftest import only_shm, slab_mappings

MB = 1 << 20
TRANSPORTS = ("shm", "tcp", slow("ofi"))


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


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


def test_a_receiver_killed_in_mid_work_leaks_nothing(plane, new_worker):
    chance = random.Random(11)
    for _ in range(3):
        worker = new_worker()
        for _ in range(chance.randrange(20)):
            worker.tell("keep", plane.export(bytes(MB // 4), worker.id))
            if chance.random() < 0.5:
                worker.tell("drop")
        worker.kill()
        assert eventually(lambda: plane.statistics()["used"] == 0)
    assert plane.statistics()["slabs"] == 1


def test_a_death_before_the_first_contact_is_told_by_the_control_plane(plane, new_id):
    never = new_id()
    plane.export(bytes(MB), never)
    plane.peer_lost(never)
    assert plane.statistics()["used"] == 0
    with pytest.raises(ActorDied):
        plane.export(bytes(MB), never)


def test_received_data_outlives_its_owner(plane, victim):
    held = plane.import_(victim.call("make", 7, MB, plane.process_id))
    victim.kill()
    plane.peer_lost(victim.id)
    assert (held[0], held[-1]) == (7, 7)


@only_shm
def test_a_dead_owners_memory_goes_with_its_last_user(plane, victim, monkeypatch):
    monkeypatch.setattr(plane_module, "GRACE_MS", 0)
    before = len(slab_mappings())
    held = plane.import_(victim.call("make", 7, MB, plane.process_id))
    assert len(slab_mappings()) > before
    victim.kill()
    plane.peer_lost(victim.id)
    assert held[0] == 7
    del held
    assert eventually(lambda: len(slab_mappings()) == before)


def test_discarding_after_the_owners_death_is_no_error(plane, victim):
    descriptor = victim.call("make", 7, MB, plane.process_id)
    other = victim.call("make", 7, MB, plane.process_id)
    plane.discard(descriptor)
    victim.kill()
    plane.discard(other)


def test_many_messages_open_no_files_and_no_mappings(plane, worker):
    def exchange() -> None:
        got = plane.import_(worker.call("make", 1, MB // 8, plane.process_id))
        assert worker.call("keep", plane.export(got, worker.id))[0] == 1
        worker.call("drop")

    for _ in range(5):
        exchange()
    gc.collect()
    files, mappings = open_files(), len(slab_mappings())
    for _ in range(200):
        exchange()
    gc.collect()
    assert (open_files(), len(slab_mappings())) == (files, mappings)


def test_a_plane_that_goes_takes_all_with_it(new_id, directory):
    from mooactor.tensors import DataPlane

    files, mappings = open_files(), len(slab_mappings())
    plane = DataPlane(directory, new_id(), b"key")
    buffer = plane.import_(plane.export(bytes(MB), plane.process_id))
    plane.close()
    del plane
    assert buffer[0] == 0
    del buffer
    gc.collect()
    assert (open_files(), len(slab_mappings())) == (files, mappings)
