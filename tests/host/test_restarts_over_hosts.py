# SPDX-License-Identifier: MIT
"""Restarts over several hosts, of which one is lost: actors wait for it, or go
elsewhere, and handles from before lead to them."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import mooactor as moo
from tests.clusters import Cluster
from tests.conftest import eventually
from tests.host.where import Where
from tests.processes import stop

PATIENCE_S = 60.0
MANY = 1000


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


def place_of(handle: Any) -> str:
    return str(handle.host.options(retries=MANY)())


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


@pytest.mark.slow
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


@pytest.mark.slow
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


# -- elsewhere ---------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all"])
def test_children_of_a_lost_host_go_on_elsewhere(made: Cluster, strategy: Any) -> None:
    """The supervisor runs on the other host, and so does one of the children."""
    children = [moo.on(Where, host="a").child(), moo.on(Where, spread=True).child()]
    supervisor: Any = moo.on(moo.Supervisor, host="a").spawn(
        children, strategy=strategy, max=MANY
    )
    stays, moves = (supervisor.child(child) for child in children)
    pid = stays.pid.options(retries=MANY)()
    assert place_of(moves) == "b"
    stays.add(3)

    made.members["b"].kill()

    assert eventually(lambda: place_of(moves) == "a")
    again = strategy == "one_for_all"
    assert eventually(lambda: (stays.pid.options(retries=MANY)() != pid) == again)


@pytest.mark.slow
def test_a_link_over_hosts_carries_the_loss_of_one(made: Cluster) -> None:
    lost, linked = (moo.on(Where, host=host).spawn() for host in "ba")
    moo.link(linked, lost)
    sleeps = linked.sleep.remote(600)
    made.members["b"].kill()
    error = sleeps.exception(timeout=60)
    assert isinstance(error, moo.ActorDied) and error.cause is not None
    assert error.cause.kind == "link"
    assert error.cause.origin is not None and error.cause.origin.kind == "host"


# -- handles -----------------------------------------------------------------------


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


@pytest.mark.slow
def test_an_old_handle_of_one_that_is_over_says_why(made: Cluster) -> None:
    handle = moo.on(Restarts, host="a", restart=moo.Restart(max=1)).spawn()
    handle.pid()
    old = pickle.dumps(handle)
    there = moo.on(Keeps, host="b").spawn()
    crash(handle, signal.SIGABRT)
    crash(handle, signal.SIGKILL)

    with pytest.raises(moo.ActorDied) as caught:
        there.ask_later(old)

    assert not isinstance(caught.value, moo.ActorRestarted)
    assert caught.value.cause.signal == signal.SIGKILL
