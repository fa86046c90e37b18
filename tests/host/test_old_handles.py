# SPDX-License-Identifier: MIT
"""Handles from before a restart, in processes of other hosts."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Iterator
from typing import Any

import pytest

import mooactor as moo
from tests.clusters import Cluster, cluster

pytestmark = pytest.mark.slow


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


@pytest.fixture
def made() -> Iterator[Cluster]:
    with cluster("ab") as made, pytest.MonkeyPatch.context() as patch:
        for key, value in made.environment("d").items():
            patch.setenv(key, value)
        patch.setenv("MOOACTOR_HOST_NAME", "d")
        with made.network.inside("d"), moo.init(made.address):
            yield made


def crash(handle: Any, number: int = signal.SIGKILL) -> None:
    with pytest.raises(moo.ActorDied):
        handle.crash(number)


@pytest.mark.parametrize("keeper", ["a", "b", "d"])
def test_the_first_call_reaches_the_present_incarnation(
    made: Cluster, keeper: str
) -> None:
    handle = moo.on(Restarts, host="b", restart=moo.Restart(max=5)).spawn()
    handle.pid()
    old = pickle.dumps(handle)
    there = moo.on(Keeps, host=keeper).spawn()
    there.ask(pickle.dumps(moo.spawn(Restarts)))
    for _ in range(2):
        crash(handle)
    pid = handle.pid()

    assert there.ask_later(old) == pid
    assert moo.on(Keeps, host=keeper).spawn().ask(old) == pid


def test_one_that_joins_the_session_later_reaches_it_too(made: Cluster) -> None:
    handle = moo.on(Restarts, host="a", restart=moo.Restart(max=5)).spawn()
    handle.pid()
    old = pickle.dumps(handle)
    crash(handle)
    pid = handle.pid()

    assert moo.on(Keeps, host="b").spawn().ask(old) == pid  # the first one there


def test_a_call_that_is_quicker_than_the_news_has_the_cause_of_the_last_death(
    made: Cluster,
) -> None:
    for _ in range(10):
        handle = moo.on(Restarts, host="a", restart=moo.Restart(max=5)).spawn()
        handle.pid()
        old = pickle.dumps(handle)
        there = moo.on(Keeps, host="b").spawn()
        there.ask(pickle.dumps(moo.on(Restarts, host="b").spawn()))
        crash(handle, signal.SIGTERM)
        crash(handle, signal.SIGKILL)
        error = there.ask.remote(old).exception()
        if error is not None:
            assert isinstance(error, moo.ActorRestarted) and error.cause is not None
            assert error.cause.signal in (signal.SIGTERM, signal.SIGKILL)
        assert there.ask(old) == handle.pid()


def test_an_old_handle_of_one_that_is_over_says_why(made: Cluster) -> None:
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
