# SPDX-License-Identifier: MIT
"""Actors whose host is away wait for it, and lose no restart by that."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import mooactor as moo
from tests.clusters import Cluster
from tests.conftest import eventually
from tests.processes import stop

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0


@moo.actor(max_concurrency=2)
class Stays:
    """Pinned to a host."""

    def pid(self) -> int:
        return os.getpid()

    def stay(self) -> None:
        threading.Event().wait()


@pytest.fixture
def made(here: Cluster) -> Iterator[Cluster]:
    with moo.init(local=False):
        yield here


def the_actor() -> moo.ActorInfo:
    (found,) = moo.actors()
    return found


def lose_host(made: Cluster, host: str, handle: Any) -> None:
    """Kill it; returns when this process knows that the actor there is dead."""
    under_way = handle.stay.remote()
    handle.pid()  # and so the other call has its turn
    made.members[host].kill()
    with pytest.raises(moo.ActorDied) as caught:
        under_way.get(timeout=PATIENCE_S)
    assert caught.value.cause.kind == "host"
    assert eventually(lambda: host not in [row["name"] for row in moo.hosts()])


def is_held_up(incarnation: int = 1) -> bool:
    """Whether it has no process, and the next one is to be that incarnation."""
    actor = the_actor()
    assert actor.state in ("waiting to restart", "starting")
    return actor.pid is None and actor.restarts == incarnation


def test_a_host_that_is_away_costs_one_restart_and_no_more(made: Cluster) -> None:
    policy = moo.Restart(max=2, within=600.0, backoff=0.05)
    handle = moo.on(Stays, host="b", restart=policy).spawn()
    pids = [handle.pid()]
    for incarnation in (1, 2):
        lose_host(made, "b", handle)
        waiting = handle.pid.remote()
        assert is_held_up(incarnation)

        made.start_host("b")

        pids.append(waiting.get(timeout=PATIENCE_S))
    assert len(set(pids)) == 3
    lose_host(made, "b", handle)
    assert moo.actors() == []


def test_an_incarnation_that_a_lost_host_may_have_begun_is_not_begun_again(
    made: Cluster,
) -> None:
    """It could still act there while another one of that number acts elsewhere."""
    handle = moo.on(Stays, host="b", restart=moo.Restart(max=9)).spawn()
    with moo.monitor(handle) as events:
        pid = handle.pid()
        stop(made.zygote("b"))  # so nobody says whether it was born
        os.kill(pid, signal.SIGKILL)
        assert eventually(lambda: the_actor().state == "starting")
        made.members["b"].kill()
        made.start_host("b")
        handle.pid.options(retries=9).remote().get(timeout=PATIENCE_S)

        seen = [(type(e).__name__, e.incarnation) for e in itertools.islice(events, 4)]

    assert seen == [("Started", 0), ("Died", 0), ("Died", 1), ("Restarted", 2)]
