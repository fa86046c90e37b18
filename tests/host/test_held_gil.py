# SPDX-License-Identifier: MIT
"""Processes that hold the GIL in C for longer than any patience are not taken for
dead: an actor on another host, and the driver at the same time."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.process.current import current_runtime
from tests.clusters import Cluster
from tests.conftest import eventually
from tests.host.where import Where

CALLS = 50
HOLD_S = [
    pytest.param(8.0, marks=pytest.mark.slow),  # longer than the patience of hosts
    pytest.param(70.0, marks=pytest.mark.soak),  # a first call failed after 60
]


def hold_the_gil(seconds: float) -> float:
    """No other thread of this process runs Python code meanwhile. Returns how long it
    was."""
    began = time.monotonic()
    sleep = ctypes.PyDLL(None).usleep  # keeps the lock during the call
    sleep(int(seconds * 1e6))
    return time.monotonic() - began


class Holder(Where):
    def hold(self, seconds: float, begun: Path) -> float:
        begun.touch()
        return hold_the_gil(seconds)


class Asker(Where):
    """Is on a third host, and awaits the holder all the time."""

    def ask_often(self, other: Any, begun: Path) -> list[int]:
        answers = [other.add.remote(1) for _ in range(CALLS)]
        begun.touch()
        return list(moo.get(answers))

    def make(self, length: int) -> Any:
        return moo.put(np.arange(length))


def noticed() -> list[int]:
    """Connections that this process took for broken, and the session's deaths."""
    ways, session = current_runtime().messenger.ways, moo.stats()["session"]
    assert ways is not None
    return [ways.breaks, session["deaths"], session["restarts"]]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seconds", HOLD_S)
def test_those_that_hold_the_gil_are_not_taken_for_dead(
    joined: Cluster, tmp_path: Path, seconds: float
) -> None:
    holder = moo.on(Holder, host="a", restart=moo.Restart()).spawn()
    asker, newcomer = moo.on(Asker, host="b", restart=moo.Restart()).group(2)
    pids = [actor.pid() for actor in (holder, asker, newcomer)]
    assert asker.ask(holder) == "a"  # they are connected
    made = asker.make.remote(1_000_000)  # stays there until somebody reads it
    begun, before = (tmp_path / "asker", tmp_path / "holder"), noticed()
    with moo.monitor(holder) as events:
        asked = asker.ask_often.remote(holder, begun[0])
        assert eventually(begun[0].exists)
        held = holder.hold.remote(seconds, begun[1])
        own = [holder.echo.remote(number) for number in range(CALLS)]
        assert eventually(begun[1].exists)
        first = newcomer.ask.remote(holder)  # which cannot answer to a handshake now

        assert hold_the_gil(seconds) >= seconds

        assert held.get() >= seconds
        assert asked.get() == list(range(1, CALLS + 1))  # each ran once, in order
        assert first.get() == "a"
        assert moo.get(own) == list(range(CALLS))
        assert moo.get(made).get().sum() == sum(range(1_000_000))
        assert [actor.pid() for actor in (holder, asker, newcomer)] == pids
        assert noticed() == before
        assert [row["alive"] for row in moo.hosts()] == [True, True]
        moo.kill(holder)
        assert [type(event) for event in events] == [moo.Started, moo.Stopped]
