# SPDX-License-Identifier: MIT
"""Memory that forked children of a process can see: how long it stays, and who says."""

from __future__ import annotations

import contextlib
import os
import signal
import warnings
from collections.abc import Iterator

import pytest

from mooactor import OutOfMemory
from mooactor.tensors import DataPlane
from tests.conftest import eventually
from tests.tensors.worker import KEY

MB = 1 << 20


@contextlib.contextmanager
def forked_child() -> Iterator[int]:
    """One that does nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there are threads
        pid = os.fork()
    if pid == 0:
        os.read(os.pipe()[0], 1)  # for ever
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.fixture
def small(directory, new_id):
    plane = DataPlane(directory, new_id(), KEY, memory_limit=4 * MB)
    yield plane
    plane.close()


def test_out_of_memory_says_what_is_kept_for_forked_children(small):
    memory = small.empty_buffer(3 * MB)
    with forked_child():
        del memory
        with pytest.raises(
            OutOfMemory, match=r"3\.15 MB were dropped.*forked children"
        ):
            small.empty_buffer(3 * MB)
    # Found without a thread's help: this plane never had another's lease to look after.
    small.empty_buffer(3 * MB)
    assert small.statistics()["kept_for_forks"] == 0


def test_memory_comes_back_by_itself_when_the_child_ends(plane, worker):
    held = plane.import_(worker.call("make", 7, MB, plane.process_id))
    with forked_child():
        del held
        assert worker.call("statistics")["used"] == MB
    assert eventually(lambda: worker.call("statistics")["used"] == 0)
