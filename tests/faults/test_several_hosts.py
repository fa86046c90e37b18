# SPDX-License-Identifier: MIT
"""Faults between hosts × what is under way: how each ends. See `cast` for the columns.

A broker and the driver are on d, the bystanders on a, the victims on b. One session has
all of these faults, one after the other.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from tests.clusters import Cluster, cluster
from tests.conftest import eventually
from tests.faults.cast import WAIT_S, Bystander, Scene, Victim, driving, lines_of
from tests.marks import slow
from tests.processes import stop

# fmt: off
TABLE = """
fault                  | error                 | runs | queued | retried | later | stream | there | handed | put | group | news
SIGKILL                | ActorDied signal      | ?    | ?      | ?       | no    | ?      | ran   | ?      | ?   | ?     | SD
SIGKILL, restarts      | ActorRestarted signal | ?    | ?      | ok      | ok    | ?      | ran   | ?      | ?   | ?     | SDRX
agent killed           | ActorDied host        | ?    | ?      | ?       | no    | ?      | ran   | ?      | ?   | ?     | SD
agent killed, restarts | ActorRestarted host   | ?    | ?      | ok      | ok    | ?      | ran   | ?      | ?   | ?     | SDRX
cable cut              | ActorDied host        | ?    | ?      | ?       | no    | ?      | ran   | ?      | ?   | ?     | SD
cable cut, restarts    | ActorRestarted host   | ?    | ?      | ok      | ok    | ?      | ran   | ?      | ?   | ?     | SDRX
b to d lost            | ActorDied host        | ?    | ?      | ?       | no    | ?      | ran   | ?      | ?   | ?     | SD
b to d lost, restarts  | ActorRestarted host   | ?    | ?      | ok      | ok    | ?      | ran   | ?      | ?   | ?     | SDRX
d to b lost            | ActorDied host        | ?    | ?      | ?       | no    | ?      | ran   | ?      | ?   | ?     | SD
d to b lost, restarts  | ActorRestarted host   | ?    | ?      | ok      | ok    | ?      | ran   | ?      | ?   | ?     | SDRX
cut for a second       |                       | ok   | ok     | ok      | ok    | ok     | ok    | ok     | ok  | ok    | SX
agent stands still     |                       | ok   | ok     | ok      | ok    | ok     | ok    | ok     | ok  | ok    | SX
actor stands still     |                       | ok   | ok     | ok      | ok    | ok     | ok    | ok     | ok  | ok    | SX
holds the GIL          |                       | ok   | ok     | ok      | ok    | ok     | ok    | ok     | ok  | ok    | SX
broker killed          |                       | ok   | ok     | ok      | ok    | ok     | ok    | ok     | ok  | ok    | SX
"""  # noqa: E501
# fmt: on
LINES = lines_of(TABLE)
SLOW = ("b to d lost", "d to b lost", "holds the GIL", "actor stands still")
FAULTS = dict.fromkeys(line.partition(",")[0] for line in LINES)
#: Less than any patience with a host or a connection.
SHORT_S = 1.2


@pytest.fixture(scope="module")
def net() -> Iterator[Cluster]:
    with cluster("ab") as made, driving(made):
        for host in "ab":  # what starts with its first actor is there from now on
            handle = on(host, Counts)
            handle.all()
            moo.kill(handle)
        yield made


def on(host: str, cls: type, **options: Any) -> Any:
    return moo.on(cls, host=host, **options).spawn()


def has_both(net: Cluster) -> bool:
    return {row["name"] for row in moo.hosts()} == {"a", "b"}


@contextlib.contextmanager
def fault(name: str, net: Cluster, scenes: list[Scene]) -> Iterator[None]:
    """It has struck within, and is over afterwards."""
    network, agent = net.network, net.members["b"]
    with contextlib.ExitStack() as stack:
        if name == "SIGKILL":
            for scene in scenes:
                scene.process.kill()
        elif name == "agent killed":
            agent.kill()
        elif name == "cable cut":
            stack.enter_context(network.cut_off("b"))
        elif name.endswith("lost"):
            stack.enter_context(network.swallowing(name[0], name[5]))
        elif name == "cut for a second":
            with network.cut_off("b"):
                time.sleep(SHORT_S)  # which is the fault
        elif name == "broker killed":
            assert net.broker is not None
            net.broker.kill()
            net.start_broker()
        elif name == "holds the GIL":
            scenes[0].order("hold")
        else:
            pids = [scene.process.pid for scene in scenes]
            for pid in [agent.pid] if name == "agent stands still" else pids:
                stop(pid)
                stack.callback(os.kill, pid, signal.SIGCONT)
            time.sleep(SHORT_S)  # which is the fault
            stack.close()
        yield
    if name == "agent killed":
        net.start_host("b")
    assert eventually(lambda: has_both(net))


@pytest.fixture(scope="module", params=[slow(f) if f in SLOW else f for f in FAULTS])
def ends(
    request: pytest.FixtureRequest,
    net: Cluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, dict[str, str]]:
    """Of one fault, by line."""
    name = request.param
    scenes = {}
    for line in (line for line in LINES if line.partition(",")[0] == name):
        restart = moo.Restart(max=9) if line.endswith("restarts") else None
        victim = on("b", Victim, restart=restart)
        place = tmp_path_factory.mktemp("scene")
        scenes[line] = Scene(victim, on("a", Bystander), place)
    with fault(name, net, [*scenes.values()]):
        for line, scene in scenes.items():
            if LINES[line]["runs"] != "ok":
                scene.known()
            scene.go_on()
            scene.known()
    found = {line: scene.ends() for line, scene in scenes.items()}
    for scene in scenes.values():  # a host that is cut off has ended them
        assert eventually(lambda s=scene: not s.process.is_running())
    return found


def test_how_it_ends(ends: dict[str, dict[str, str]]) -> None:
    for line, found in ends.items():
        assert found == LINES[line], line


# -- calls and data under way --------------------------------------------------------


class Counts:
    """Keeps what it was told, in order."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def tell(self, number: int) -> int:
        self.told.append(number)
        return number

    def all(self) -> list[int]:
        return self.told

    def size(self, array: Any) -> int:
        return int(array.nbytes)

    def ones(self, nbytes: int) -> Any:
        return np.ones(nbytes, np.uint8)


@pytest.fixture
def place(net: Cluster) -> Iterator[Callable[..., Any]]:
    """`on`, for actors that are gone when the test is over."""
    placed: list[Any] = []

    def place(host: str, cls: type, **options: Any) -> Any:
        placed.append(on(host, cls, **options))
        return placed[-1]

    yield place
    for handle in placed:
        moo.kill(handle)


def test_a_death_on_another_host_is_told_with_its_last_lines(
    place: Callable[..., Any], tmp_path: Path
) -> None:
    order = tmp_path / "order"
    order.write_text("crash")
    with pytest.raises(moo.ActorDied, match="SIGSEGV") as caught:
        place("b", Victim).obey(order, tmp_path / "begun")
    assert caught.value.cause is not None
    assert caught.value.cause.stderr[-1:] == ("last words",)


@pytest.mark.slow
def test_a_saturated_link_kills_nobody_and_small_calls_are_answered(
    net: Cluster, place: Callable[..., Any]
) -> None:
    nbytes = 32 << 20  # more than five seconds at 50 Mbit/s
    busy, asked = place("b", Counts), place("b", Counts)
    assert (busy.tell(0), asked.all()) == (0, [])
    with net.network.slow("b", mbit=50):
        there = busy.size.remote(np.ones(nbytes, np.uint8))
        back = asked.ones.remote(nbytes)
        answered = 0
        while not (there.done() and back.done()):
            assert asked.tell.remote(answered).get(timeout=WAIT_S) == answered
            answered += 1
    assert there.get() == nbytes and back.get().sum() == nbytes
    assert answered > 5  # some hundred, unless they wait behind the arrays
    assert (busy.all(), asked.all()) == ([0], list(range(answered)))
    assert has_both(net)
