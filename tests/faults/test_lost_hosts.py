# SPDX-License-Identifier: MIT
"""Hosts that are lost, or stand still for long, and come back."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import mooactor as moo
from tests.clusters import Cluster, cluster
from tests.conftest import eventually
from tests.faults.cast import WAIT_S, Victim, driving
from tests.process import programs
from tests.processes import Process, stop

pytestmark = pytest.mark.slow


@pytest.fixture
def fragile() -> Iterator[Cluster]:
    """A cluster of the test's own."""
    with cluster("ab") as made, driving(made):
        yield made


class Saved:
    """Its count survives it."""

    def __init__(self, mark: Path) -> None:
        self.count, self.mark = 0, mark

    def add(self) -> int:
        self.count += 1
        Path(f"{self.mark}-{self.count}").touch()
        return self.count

    def __snapshot__(self) -> int:
        return self.count

    def __restore__(self, count: int) -> None:
        self.count = count


class Parent:
    """Has an actor of its own on the same host."""

    def adopt(self) -> None:
        self.child = moo.on(Victim, host="b").spawn()


def test_the_loss_of_a_host_undoes_no_state_that_a_caller_has_seen(
    fragile: Cluster, tmp_path: Path
) -> None:
    """Among what is lost is an actor that is not born yet, of another one there."""
    saved = moo.on(Saved, host="b", restart=moo.Restart(max=100))
    counter, parent = saved.spawn(tmp_path / "n"), moo.on(Parent, host="b").spawn()
    assert [counter.add(), counter.add(), parent.adopt()] == [1, 2, None]
    stop(fragile.zygote("b"))  # it forks nobody
    parent.adopt()
    stop(fragile.members["b"].pid)  # the actors go on
    third = counter.add.remote()
    assert eventually((tmp_path / "n-3").exists)
    fragile.members["b"].kill()
    with pytest.raises((moo.ActorRestarted, moo.ActorDied)):
        third.get(timeout=WAIT_S)
    with pytest.raises(moo.ActorDied):
        parent.adopt()
    fragile.start_host("b")
    assert counter.add.options(retries=10).remote().get(timeout=WAIT_S) == 3


ASKS_FOR_ALL = """
    import sys
    import mooactor as moo

    class Idle:
        pass

    with moo.init(sys.argv[1], local=False):
        try:
            moo.on(Idle, host="b", num_cpus=int(sys.argv[2])).spawn()
            print("given")
        except moo.PlacementError as error:
            print(error)
"""


def test_a_host_that_stood_still_keeps_what_is_reserved_after_its_return(
    fragile: Cluster, tmp_path: Path
) -> None:
    (cpus,) = [row["cpus"] for row in moo.hosts() if row["name"] == "b"]
    victim = moo.on(
        Victim, host="b", num_cpus=cpus, restart=moo.Restart(max=100)
    ).spawn()
    old, agent = Process.of(victim.pid()), fragile.members["b"].pid
    waits = victim.wait.remote(tmp_path / "gate")
    stop(agent)
    with pytest.raises((moo.ActorRestarted, moo.ActorDied)):
        waits.get(timeout=WAIT_S)
    os.kill(agent, signal.SIGCONT)
    assert victim.pid.options(retries=100).remote().get(timeout=WAIT_S) != old.pid
    # So the agent has closed what it had of the session before.
    assert eventually(lambda: not old.is_running())
    program = programs.write(tmp_path / "asks.py", ASKS_FOR_ALL)
    done = programs.run(program, fragile.address, str(cpus))
    assert "all is reserved" in done.stdout, done


def test_a_host_that_has_lost_its_driver_ends_the_actors_by_itself(
    fragile: Cluster,
) -> None:
    processes = [Process.of(moo.on(Victim, host="b").spawn().pid()) for _ in range(3)]
    directory = fragile.directory / "b"
    with fragile.network.cut_off("d"):
        assert eventually(lambda: not any(p.is_running() for p in processes))
        assert eventually(lambda: not list(directory.glob("mooactor-*")))
