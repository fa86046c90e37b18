# SPDX-License-Identifier: MIT
"""Supervisors, links and monitors over several hosts, of which one is lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import mooactor as moo
from tests.clusters import Cluster
from tests.conftest import eventually
from tests.host.where import Where

pytestmark = pytest.mark.slow
MANY = 1000


@pytest.fixture(autouse=True)
def _session(here: Cluster) -> Iterator[None]:
    with moo.init(local=False):
        yield


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


def test_a_link_over_hosts_carries_the_loss_of_one(here: Cluster) -> None:
    lost, linked = (moo.on(Where, host=host).spawn() for host in "ba")
    moo.link(linked, lost)
    sleeps = linked.sleep.remote(600)
    here.members["b"].kill()
    error = sleeps.exception(timeout=60)
    assert isinstance(error, moo.ActorDied) and error.cause is not None
    assert error.cause.kind == "link"
    assert error.cause.origin is not None and error.cause.origin.kind == "host"
