# SPDX-License-Identifier: MIT
"""Restarts over several hosts: no incarnation begins twice, and handles from before
lead to the present one."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Iterator
from typing import Any

import pytest

import mooactor as moo
from tests.clusters import Cluster


class Restarts:
    def pid(self) -> int:
        return os.getpid()

    def crash(self, number: int) -> None:
        os.kill(os.getpid(), number)


@pytest.fixture
def made(here: Cluster) -> Iterator[Cluster]:
    with moo.init(local=False):
        yield here


# -- handles -----------------------------------------------------------------------


class Keeps:
    """Has the bytes of a handle, and no process of its own has met that actor."""

    def ask(self, old: bytes) -> int:
        return int(pickle.loads(old).pid())

    def ask_later(self, old: bytes) -> int:
        moo.hosts()  # answered by the session's agent, after what it has sent before
        return self.ask(old)


def crash(handle: Any, number: int = signal.SIGKILL) -> None:
    with pytest.raises(moo.ActorDied):
        handle.crash(number)


def test_the_first_call_reaches_the_present_incarnation(made: Cluster) -> None:
    handle = moo.on(Restarts, host="b", restart=moo.Restart(max=9)).spawn()
    handle.pid()
    old = pickle.dumps(handle)
    keepers = [moo.on(Keeps, host=host).spawn() for host in "ab"]
    for keeper in keepers:
        keeper.ask(pickle.dumps(moo.on(Restarts, host="a").spawn()))
    for _ in range(2):
        crash(handle)
    pid = handle.pid()

    assert [keeper.ask_later(old) for keeper in keepers] == [pid] * 2
    newcomers = [moo.on(Keeps, host=host).spawn() for host in "ab"]
    assert [keeper.ask(old) for keeper in newcomers] == [pid] * 2
