# SPDX-License-Identifier: MIT
"""Supervisors, links and monitors over several hosts, of which one is lost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from tests.clusters import Cluster, cluster
from tests.conftest import eventually
from tests.host.where import Where

pytestmark = pytest.mark.slow
MANY = 1000


@pytest.fixture
def two() -> Iterator[Cluster]:
    with cluster("ab") as made:
        yield made


@pytest.fixture
def here(two: Cluster, as_driver: Callable[..., Cluster]) -> Iterator[Cluster]:
    as_driver(two)
    with moo.init(two.address, local=False):
        yield two


def place_of(handle: Any) -> str:
    return str(handle.host.options(retries=MANY)())


@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all"])
def test_children_of_a_lost_host_go_on_elsewhere(here: Cluster, strategy: Any) -> None:
    """The supervisor runs on the other host, and so does one of the children."""
    children = [moo.on(Where, host="a").child(), moo.on(Where, spread=True).child()]
    supervisor: Any = moo.on(moo.Supervisor, host="a").spawn(
        children, strategy=strategy, max=MANY
    )
    stays, moves = (supervisor.child(child) for child in children)
    pid = stays.pid.options(retries=MANY)()
    assert place_of(moves) == "b"
    stays.add(3)

    here.members["b"].kill()

    assert eventually(lambda: place_of(moves) == "a")
    again = strategy == "one_for_all"
    assert eventually(lambda: (stays.pid.options(retries=MANY)() != pid) == again)


class Waits(Where):
    """Is constructed once there is a file of that name."""

    def __init__(self, path: str) -> None:
        super().__init__()
        while not os.path.exists(path):
            time.sleep(0.01)


def test_a_child_whose_host_leaves_before_its_turn_starts_elsewhere(
    here: Cluster, tmp_path: Path
) -> None:
    before = {row["name"]: row["free"]["cpus"] for row in moo.hosts()}
    first = moo.on(Waits, host="a").child(str(tmp_path / "go"))
    second = moo.on(Where, num_cpus=1).child()
    supervisor: Any = moo.on(moo.Supervisor, host="a").spawn([first, second], max=0)

    def free_on_b() -> float | None:
        return {r["name"]: r["free"]["cpus"] for r in moo.hosts()}.get("b")

    assert eventually(lambda: free_on_b() == before["b"] - 1)  # it is placed there
    here.members["b"].kill()
    assert eventually(lambda: free_on_b() is None)

    (tmp_path / "go").touch()

    assert place_of(supervisor.child(second)) == "a"
    assert [one.restarts for one in moo.actors()] == [0, 0, 0]


def test_a_link_over_hosts_carries_the_loss_of_one(here: Cluster) -> None:
    lost, linked = (moo.on(Where, host=host).spawn() for host in "ba")
    moo.link(linked, lost)
    sleeps = linked.sleep.remote(600)
    here.members["b"].kill()
    error = sleeps.exception(timeout=60)
    assert isinstance(error, moo.ActorDied) and error.cause is not None
    assert error.cause.kind == "link"
    assert error.cause.origin is not None and error.cause.origin.kind == "host"


def test_a_monitor_tells_of_a_move_to_another_host_once(here: Cluster) -> None:
    policy = moo.Restart(max=MANY)
    spread = moo.on(Where, num_cpus=1, restart=policy).group(2)
    moves = next(handle for handle in spread if place_of(handle) == "b")
    with moo.monitor(moves) as events:
        assert isinstance(next(events), moo.Started)
        here.members["b"].kill()
        died, restarted = next(events), next(events)
        assert isinstance(died, moo.Died) and died.cause.kind == "host"
        assert isinstance(restarted, moo.Restarted)
        assert place_of(moves) == "a"
        moo.stop(moves)
        assert isinstance(next(events), moo.Stopped)
        assert list(events) == []
