# SPDX-License-Identifier: MIT
from __future__ import annotations

import gc
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator

import pytest

from mooactor.tensors import DataPlane
from tests.tensors.worker import KEY, Worker

_ids = itertools.count(1 << 20)


@pytest.fixture
def directory() -> Iterator[str]:
    path = tempfile.mkdtemp(prefix="moo-plane-")
    yield path
    shutil.rmtree(path)


@pytest.fixture
def new_id() -> Callable[[], int]:
    return lambda: next(_ids) << 16


@pytest.fixture
def new_plane(
    directory: str, new_id: Callable[[], int]
) -> Iterator[Callable[..., DataPlane]]:
    planes: list[DataPlane] = []

    def make(memory_limit: int | None = None, key: bytes = KEY) -> DataPlane:
        planes.append(DataPlane(directory, new_id(), key, memory_limit=memory_limit))
        return planes[-1]

    yield make
    for plane in planes:
        plane.close()
    planes.clear()
    gc.collect()


@pytest.fixture
def plane(new_plane: Callable[..., DataPlane]) -> DataPlane:
    return new_plane()


@pytest.fixture
def new_worker(
    directory: str, new_id: Callable[[], int]
) -> Iterator[Callable[[], Worker]]:
    workers: list[Worker] = []

    def start() -> Worker:
        workers.append(Worker(directory, new_id()))
        workers[-1].call("statistics")  # it is there
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()


@pytest.fixture
def worker(new_worker: Callable[[], Worker]) -> Worker:
    return new_worker()


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether it comes true within five seconds; looked at again and again."""
    deadline = time.monotonic() + 5
    while not condition():
        if time.monotonic() > deadline:
            return False
        os.sched_yield()
    return True


def slab_mappings() -> list[str]:
    """The mappings of shared memory in this process."""
    with open("/proc/self/maps") as maps:
        return [line for line in maps if "mooactor-" in line]
