# SPDX-License-Identifier: MIT
"""Imports that do not wait: results, tags, memory of the caller's, cancelling."""

from __future__ import annotations

import gc
import select

import numpy as np
import pytest

from mooactor import Cancelled, InternalError
from tests.marks import slow

MB = 1 << 20
TRANSPORTS = ("shm", "tcp", slow("ofi"))


def test_a_fetch_gives_the_bytes_again_and_again(plane, worker):
    fetch = plane.begin(worker.call("make", 7, MB, plane.process_id))
    received = fetch.result(5)
    assert (len(received), received[0], received[-1]) == (MB, 7, 7)
    assert fetch.result(0) is received
    received[0] = 8
    assert fetch.wait(0)


def test_a_tag_comes_up_once_and_makes_the_file_readable(plane):
    fd = plane.finished_fd
    assert not select.select([fd], [], [], 0)[0]
    kept = [
        plane.begin(plane.export(bytes(100), plane.process_id), tag)
        for tag in (3, 0, 4)
    ]
    assert select.select([fd], [], [], 5)[0]
    assert [fetch.wait(5) for fetch in kept] == [True] * 3
    assert plane.finished() == [3, 4]
    assert plane.finished() == []
    assert not select.select([fd], [], [], 0)[0]
    descriptors = [plane.export(b"x", plane.process_id) for _ in range(600)]
    kept = [plane.begin(d, n + 1) for n, d in enumerate(descriptors)]
    assert all(fetch.wait(5) for fetch in kept)
    assert plane.finished() == list(range(1, 601))  # more than fit one call


def test_the_tag_of_a_cancelled_fetch_does_not_come_up(plane):
    fetches = [
        plane.begin(plane.export(bytes(100), plane.process_id), n) for n in (1, 2, 3)
    ]
    fetches[2].cancel()
    fetches[2].cancel()
    with pytest.raises(Cancelled):
        fetches[2].result()
    assert plane.finished() == [1, 2]
    fetches[0].cancel()
    assert not select.select([plane.finished_fd], [], [], 0)[0]


def test_bytes_go_into_memory_of_the_caller(plane, worker):
    mine = np.zeros(MB, np.uint8)
    result = plane.begin(
        worker.call("make", 5, MB, plane.process_id), out=mine
    ).result()
    assert mine[0] == mine[-1] == 5
    mine[0] = 6
    assert result[0] == 6
    assert plane.statistics()["used"] == 0


def test_read_only_memory_and_memory_of_another_size_are_refused(plane):
    descriptor = plane.export(bytes(100), plane.process_id)
    for out in (bytearray(99), bytearray(101)):
        with pytest.raises(ValueError, match="invalid argument"):
            plane.begin(descriptor, out=out)
    with pytest.raises(BufferError, match="read-only|writ"):
        plane.begin(descriptor, out=bytes(100))
    assert plane.begin(descriptor).result(5) == bytes(100)
    plane.begin(plane.export(bytes(MB), plane.process_id))  # and is dropped
    gc.collect()
    assert plane.statistics()["used"] == 0


def test_a_descriptor_is_good_for_one_fetch(plane):
    descriptor = plane.export(bytes(100), plane.process_id)
    kept = plane.begin(descriptor)
    with pytest.raises(InternalError, match="fetched or revoked before"):
        plane.begin(descriptor).result(5)
    assert kept.result(5) == bytes(100)
