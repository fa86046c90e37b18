# SPDX-License-Identifier: MIT
"""A `mooactor host` beside the driver: sockets in its directory, and shared memory."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
from msgspec.structs import replace

import mooactor as moo
from mooactor.host import remote
from mooactor.process.current import current_runtime
from tests.conftest import eventually


class Worker:
    """Adds up, calls others."""

    def pid(self):
        return os.getpid()

    def total(self, array):
        return float(array.sum())

    def ask(self, other, array):
        return other.total(array)

    def directory(self):
        return current_runtime().directory

    def process_id(self):
        return current_runtime().process_id

    def ways(self):
        return len(current_runtime().messenger.ways)

    def make(self):
        return moo.put(np.ones(1 << 20))


@pytest.fixture
def beside_a(whole_cluster, as_driver):
    """This process is a driver on the machine of host a."""
    return as_driver(whole_cluster, "a", "driver")


def transports():
    return {peer["actor"]: peer["transport"] for peer in moo.stats()["peers"]}


def on(host, name):
    return moo.on(Worker, host=host, name=name).spawn()


def test_what_is_beside_the_driver_goes_by_files_and_what_is_far_by_tcp(beside_a):
    array = np.ones(1 << 20)
    with moo.init():
        near, own = on("a", "near"), on("driver", "own")

        assert near.total(array) == own.total(array) == array.sum()
        assert near.ask(own, array) == own.ask(near, array) == array.sum()
        assert own.total(near.make()) == array.sum()
        assert transports() == {"Worker:near": "shm", "Worker:own": "shm"}
        assert len(current_runtime().messenger.ways) == near.ways() == own.ways() == 0

        far = on("b", "far")
        assert near.ask(far, array) == far.ask(near, array) == array.sum()
        assert far.total(array) == array.sum()
        assert transports()["Worker:far"] == "tcp"
        assert (near.ways(), far.ways()) == (1, 2)


def test_nothing_is_left_of_a_session_that_an_agent_beside_it_shared(beside_a):
    with moo.init():
        near, directory = on("a", "near"), current_runtime().directory
        assert near.directory() == directory
        inbox = f"{directory}/{near.process_id():016x}"
        assert os.path.exists(inbox)
        os.kill(near.pid(), signal.SIGKILL)
        with pytest.raises(moo.ActorDied) as caught:
            near.pid()
        assert caught.value.cause.signal == signal.SIGKILL
        assert eventually(lambda: not os.path.exists(inbox))
    assert not os.path.exists(directory)
    assert os.listdir(beside_a.environment("a")["TMPDIR"]) == []


def test_only_the_same_directory_of_the_same_user_and_machine_is_shared(tmp_path):
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    offered = remote.invitation(str(own))
    assert remote.accepted(offered) == str(own)

    for wrong in (
        {"inode": offered.inode + 1},
        {"device": offered.device + 1},
        {"machine": ["another boot", *offered.machine[1:]]},
        {"directory": os.fsencode(tmp_path / "none")},
        {"directory": b"a\0b"},
    ):
        assert remote.accepted(replace(offered, **wrong)) is None
    assert remote.accepted(None) is None
    assert remote.invitation(str(tmp_path / "none")) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a directory away needs root")
def test_a_directory_of_another_user_is_not_shared(tmp_path):
    os.chown(tmp_path, 12345, 12345)
    assert remote.accepted(remote.invitation(str(tmp_path))) is None
