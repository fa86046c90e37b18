# SPDX-License-Identifier: MIT
"""Actors in network namespaces of their own, and what of the network they use there."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.process.current import current_runtime
from tests.conftest import eventually, running_session
from tests.networks import Cable, why_not

_reason = why_not()
in_namespaces = pytest.mark.skipif(_reason is not None, reason=str(_reason))


@moo.actor
class Where:
    """Says where it is, and what it may use."""

    def pid(self) -> int:
        return os.getpid()

    def namespaces(self) -> set[int]:
        """Of all threads that it has."""
        tasks = os.listdir("/proc/self/task")
        return {os.stat(f"/proc/self/task/{task}/ns/net").st_ino for task in tasks}

    def network(self) -> Any:
        return current_runtime().network

    def size(self, data: Any) -> int:
        return len(data)

    def crash(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="module")
def cable() -> Iterator[Cable]:
    made = Cable()
    yield made
    made.close()


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    with running_session(transport="shm,tcp") as running:
        yield running


def on(**env: str) -> Any:
    return moo.on(Where, env=env)


def inode(cable: Cable, host: str) -> int:
    return os.stat(f"/run/netns/{cable.namespace[host]}").st_ino


def cause_of(actor: Any) -> str:
    """Why an actor could not begin."""
    with pytest.raises(moo.ActorDied) as caught:
        actor.pid()
    cause = caught.value.cause
    assert cause is not None and cause.kind == "exception"
    return str(cause)


@in_namespaces
def test_an_actor_is_where_it_was_put_with_all_its_threads(
    cable: Cable, spawn: Callable[..., Any]
) -> None:
    here = os.stat("/proc/self/ns/net").st_ino
    env = {"MOOACTOR_NETNS": cable.namespace["a"], "MOOACTOR_BIND": "up0"}
    first = spawn(on(**env))
    assert first.namespaces() == {inode(cable, "a")} != {here}
    # The name of an interface stands for its address where the actor is.
    assert first.network().bind == "10.99.1.1"
    # A process that is apart is reached over the cable.
    env = {
        "MOOACTOR_NETNS": f"/run/netns/{cable.namespace['b']}",
        "MOOACTOR_HOST_ID": "b",
        "MOOACTOR_BIND": "10.99.1.2",
    }
    again = moo.Restart(max=1, within=60)
    second = spawn(moo.on(Where, env=env, restart=again))
    assert second.namespaces() == {inode(cable, "b")}
    with pytest.raises(moo.ActorRestarted):
        second.crash()
    assert second.namespaces() == {inode(cable, "b")}
    assert second.size(moo.put(np.ones(10))) == 10
    assert spawn(on()).namespaces() == {here}


def test_an_actor_has_what_its_own_variables_say(spawn: Callable[..., Any]) -> None:
    network = spawn(on()).network()
    assert network == current_runtime().network
    env = {
        "MOOACTOR_TRANSPORT": "tcp",
        "MOOACTOR_BIND": "127.0.0.1",
        "MOOACTOR_STRIPES": "3",
        "MOOACTOR_CHECKSUM": "1",
    }
    actor = spawn(on(**env))
    network = actor.network()
    assert network.transports == ("tcp",)
    assert (network.bind, network.stripes, network.checksum) == ("127.0.0.1", 3, True)
    assert actor.size(np.ones(100_000, np.uint8)) == 100_000
    rows = [row for row in moo.stats()["peers"] if row["bytes_sent"] == 100_000]
    assert [row["transport"] for row in rows] == ["tcp"]


def test_a_variable_that_makes_no_sense_is_the_cause(
    spawn: Callable[..., Any],
) -> None:
    found = cause_of(spawn(on(MOOACTOR_NETNS="of-no-name")))
    assert "MOOACTOR_NETNS" in found and "No such file" in found
    assert eventually(lambda: not moo.stats()["calls_pending"])  # it is forgotten
