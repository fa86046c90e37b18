# SPDX-License-Identifier: MIT
"""How soon a death is known: the promises of time, one test each."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

import mooactor as moo
from tests.clusters import Cluster, cluster
from tests.conftest import at_best
from tests.faults.cast import WAIT_S, Victim, driving
from tests.pace import Pace

pytestmark = pytest.mark.quiet


@pytest.fixture
def net() -> Iterator[Cluster]:
    with cluster("b") as made, driving(made):
        yield made


def seconds_to_news(place: Any) -> float:
    """From the SIGKILL of an actor to the end of a call to it."""
    victim = place.spawn()
    pid = victim.pid()
    ref = victim.wait.remote("/never")
    victim.echo()
    began = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    assert isinstance(ref.exception(timeout=WAIT_S), moo.ActorDied)
    return time.perf_counter() - began


def test_a_death_is_known_within_fifty_milliseconds(no_session: None) -> None:
    with moo.init():
        assert at_best(lambda: seconds_to_news(moo.on(Victim)), 0.05, tries=20)


def test_a_death_is_known_on_another_host_within_a_hundred(net: Cluster) -> None:
    assert at_best(lambda: seconds_to_news(moo.on(Victim, host="b")), 0.1, tries=20)


def test_a_host_that_vanished_is_known_within_three_seconds(net: Cluster) -> None:
    ref = moo.on(Victim, host="b").spawn().wait.remote("/never")
    with pytest.raises(moo.CallTimeout):
        ref.get(timeout=0.5)  # it has begun
    with net.network.cut_off("b"), Pace() as pace:
        error = ref.exception(timeout=WAIT_S)
        seconds = pace.seconds()
    assert isinstance(error, moo.ActorDied) and error.cause is not None
    assert error.cause.kind == "host" and "nothing was heard" in str(error)
    assert seconds < 3.5  # as TCP and the agents' beats add up
