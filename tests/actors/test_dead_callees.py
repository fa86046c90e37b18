# SPDX-License-Identifier: MIT
"""Calls with arrays to an actor that is dead, before the agent has told of it.

The data plane sees the end of a process by itself. While the agent is stopped, nobody
else knows.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.host.session import current_session
from tests.conftest import eventually
from tests.processes import Process, stop

DATA = np.arange(1 << 18)


@moo.actor
class Adder:
    def pid(self) -> int:
        return os.getpid()

    def add(self, data: Any) -> int:
        return int(data.sum())


@contextmanager
def dead_and_not_known(handle: Any) -> Iterator[None]:
    """The actor's process is dead meanwhile, and there is no notice of it."""
    session = current_session()
    assert session is not None
    process = Process.of(handle.pid())
    handle.add(DATA)  # the data plane knows it
    stop(session._agent.pid)
    try:
        process.kill()
        assert eventually(lambda: not process.is_running())
        yield
    finally:
        os.kill(session._agent.pid, signal.SIGCONT)


def test_the_call_starts_and_its_ref_has_the_death(spawn: Any) -> None:
    handle = spawn(Adder)
    with dead_and_not_known(handle):
        refs = [handle.add.remote(DATA) for _ in range(5)]
    for ref in refs:
        with pytest.raises(moo.ActorDied, match="SIGKILL") as caught:
            ref.get(30)
        assert caught.value.delivered is False


def test_a_restart_ends_it_too(spawn: Any) -> None:
    handle = spawn(moo.on(Adder, restart=moo.Restart()))
    with dead_and_not_known(handle):
        ref = handle.add.remote(DATA)
    with pytest.raises(moo.ActorRestarted) as caught:
        ref.get(30)
    assert caught.value.delivered is False


def test_with_retries_the_next_process_runs_it(spawn: Any) -> None:
    handle = spawn(moo.on(Adder, restart=moo.Restart()))
    with dead_and_not_known(handle):
        ref = handle.add.options(retries=1).remote(DATA)
    assert ref.get(30) == DATA.sum()


def test_a_group_loses_only_the_dead_member(group: Any) -> None:
    members = group(Adder, 3)
    members.add.call(DATA).get()
    with dead_and_not_known(members[1]):
        ref = members.add.call(DATA)
    first, second, third = ref.get(30, return_exceptions=True)
    assert first == third == DATA.sum()
    assert isinstance(second, moo.ActorDied)


def test_a_tell_is_reported(spawn: Any, capfd: pytest.CaptureFixture[str]) -> None:
    handle = spawn(Adder)
    with dead_and_not_known(handle):
        handle.add.tell(DATA)
    with pytest.raises(moo.ActorDied):
        handle.pid()
    assert eventually(lambda: "tell to Adder did not run" in capfd.readouterr().err)


def test_a_deadline_ends_it_if_no_notice_comes(spawn: Any) -> None:
    handle = spawn(Adder)
    with dead_and_not_known(handle):
        ref = handle.add.options(timeout=0.2).remote(DATA)
        with pytest.raises(moo.CallTimeout):
            ref.get()
