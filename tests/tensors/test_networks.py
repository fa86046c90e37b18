# SPDX-License-Identifier: MIT
"""Data that is fetched over a network: its value, its memory, its end."""

from __future__ import annotations

import gc

import pytest

from mooactor import InternalError, OutOfMemory
from mooactor.tensors import DataPlane
from tests.conftest import eventually
from tests.marks import slow

MB = 1 << 20
TRANSPORTS = ("tcp", slow("ofi"))


def bound(plane: DataPlane, *, links: int | None = None) -> bool:
    """Whether nothing is held or under way any more."""
    stats = plane.statistics()
    return not (stats["leases"] or stats["used"] or stats["fetches"]) and (
        links is None
    ) | (stats["links"] == links)


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
