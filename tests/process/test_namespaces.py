# SPDX-License-Identifier: MIT
"""Actors in network namespaces of their own, and what of the network they use there."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.process.current import current_runtime
from tests.conftest import eventually, running_session
from tests.networks import Cable, inside, ip, why_not

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
    names = cable.namespace
    for host, namespace in [("a", names["a"]), ("b", f"/run/netns/{names['b']}")]:
        actor = spawn(on(MOOACTOR_NETNS=namespace, MOOACTOR_BIND="*"))
        assert actor.namespaces() == {inode(cable, host)} != {here}
    assert spawn(on()).namespaces() == {here}


@in_namespaces
def test_it_is_there_again_when_it_was_restarted(
    cable: Cable, spawn: Callable[..., Any]
) -> None:
    env = {"MOOACTOR_NETNS": cable.namespace["b"]}
    again = moo.Restart(max=1, within=60)
    actor = spawn(moo.on(Where, env=env, restart=again))
    with pytest.raises(moo.ActorRestarted):
        actor.crash()
    assert actor.namespaces() == {inode(cable, "b")}


@in_namespaces
def test_who_is_apart_is_reached_over_the_cable(
    cable: Cable, spawn: Callable[..., Any]
) -> None:
    a, b = (
        spawn(
            on(
                MOOACTOR_NETNS=cable.namespace[host],
                MOOACTOR_HOST_ID=host,
                MOOACTOR_BIND=f"10.99.1.{number}",
            )
        )
        for number, host in enumerate("ab", 1)
    )
    before = cable.sent("a")
    made = moo.put(np.ones(10))  # small: with its call
    assert b.size(made) == 10
    assert a.namespaces() != b.namespaces()
    assert cable.sent("a") - before < 10_000


@in_namespaces
def test_the_name_of_an_interface_stands_for_its_address_where_the_actor_is(
    cable: Cable, spawn: Callable[..., Any]
) -> None:
    for host, address in (("a", "10.99.1.1"), ("b", "10.99.1.2")):
        env = {"MOOACTOR_NETNS": cable.namespace[host], "MOOACTOR_BIND": "up0"}
        assert spawn(on(**env)).network().bind == address


@in_namespaces
def test_an_interface_without_an_address_is_the_cause(
    cable: Cable, spawn: Callable[..., Any]
) -> None:
    namespace = cable.namespace["a"]
    ip("-n", namespace, "link", "add", "bare0", "type", "veth", "peer", "bare1")
    found = cause_of(spawn(on(MOOACTOR_NETNS=namespace, MOOACTOR_BIND="bare0")))
    assert "MOOACTOR_BIND='bare0': this interface has no address" in found
    assert "lo (127.0.0.1), up0 (10.99.1.1)" in found


@in_namespaces
def test_the_tests_own_thread_comes_back(cable: Cable) -> None:
    before = os.stat("/proc/thread-self/ns/net").st_ino
    found: list[int] = []

    def look() -> None:
        found.append(os.stat("/proc/thread-self/ns/net").st_ino)

    with inside(cable.namespace["a"]):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert found == [inode(cable, "a")]
    assert os.stat("/proc/thread-self/ns/net").st_ino == before


def test_a_namespace_that_is_not_there_is_the_cause(spawn: Callable[..., Any]) -> None:
    found = cause_of(spawn(on(MOOACTOR_NETNS="of-no-name")))
    assert found.startswith("PlacementError: MOOACTOR_NETNS='of-no-name': No such file")
    assert "`ip netns list`" in found


def test_what_is_no_namespace_is_the_cause(spawn: Callable[..., Any]) -> None:
    found = cause_of(spawn(on(MOOACTOR_NETNS=sys.executable)))
    assert "needs root" in found or "not a network namespace" in found


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


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("MOOACTOR_TRANSPORT", "tpc", "'tpc' is not a transport; use"),
        ("MOOACTOR_STRIPES", "0", "from 1 to 16"),
        ("MOOACTOR_BIND", "nowhere0", "no interface of this host; give a numeric"),
        ("MOOACTOR_BIND", "192.0.2.7", "address of this host"),
    ],
)
def test_a_variable_that_makes_no_sense_is_the_cause(
    spawn: Callable[..., Any], variable: str, value: str, words: str
) -> None:
    found = cause_of(spawn(on(**{variable: value})))
    assert variable in found and words in found


def test_who_died_of_it_is_forgotten(spawn: Callable[..., Any]) -> None:
    actor = spawn(on(MOOACTOR_NETNS="of-no-name"))
    cause_of(actor)
    assert eventually(lambda: not moo.stats()["calls_pending"])
