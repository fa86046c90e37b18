# SPDX-License-Identifier: MIT
"""Handles from before a restart, in processes of other hosts."""

from __future__ import annotations

import os
import pickle
import signal
from typing import Any

import pytest

import mooactor as moo
from tests.clusters import Cluster


class Restarts:
    def pid(self) -> int:
        return os.getpid()

    def crash(self, number: int) -> None:
        os.kill(os.getpid(), number)


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


def test_the_first_call_reaches_the_present_incarnation(joined: Cluster) -> None:
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


def test_an_old_handle_of_one_that_is_over_says_why(joined: Cluster) -> None:
    handle = moo.on(Restarts, host="a", restart=moo.Restart(max=1)).spawn()
    handle.pid()
    old = pickle.dumps(handle)
    there = moo.on(Keeps, host="b").spawn()
    crash(handle, signal.SIGTERM)
    crash(handle, signal.SIGKILL)

    with pytest.raises(moo.ActorDied) as caught:
        there.ask_later(old)

    assert not isinstance(caught.value, moo.ActorRestarted)
    assert caught.value.cause.signal == signal.SIGKILL
