# SPDX-License-Identifier: MIT
"""Drivers on hosts of a cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import mooactor as moo
from tests.clusters import Cluster, driver_on, lasting_cluster, whole_cluster
from tests.conftest import eventually
from tests.host.where import on

__all__ = ["lasting_cluster", "whole_cluster"]


@pytest.fixture
def as_driver() -> Iterator[Callable[..., Cluster]]:
    """Call it with a cluster: this process is a driver on its `host`, under the name
    `name`, until the test ends. Ask for it after the cluster, to end before that."""
    with contextlib.ExitStack() as places:

        def become(made: Cluster, host: str = "d", name: str | None = None) -> Cluster:
            places.enter_context(driver_on(made, host, name))
            return made

        yield become
        moo.shutdown()


@pytest.fixture
def here(whole_cluster: Cluster, as_driver: Callable[..., Cluster]) -> Cluster:
    """This process is a driver on host d, and has no session yet."""
    return as_driver(whole_cluster)


@pytest.fixture(scope="module")
def _session_of_hosts(lasting_cluster: Cluster) -> Iterator[Cluster]:
    with driver_on(lasting_cluster), moo.init(local=False):
        for host in "ab":  # helpers of all kinds are there from now on
            warm = on(host).spawn()
            warm.echo(np.ones(1 << 18))
            moo.kill(warm)
        yield lasting_cluster


@pytest.fixture
def joined(_session_of_hosts: Cluster, whole_cluster: Cluster) -> Iterator[Cluster]:
    """This process has a session with hosts a and b, the same one for all tests of the
    module; its actors end with the test. Not for tests that break anything."""
    yield whole_cluster
    for actor in moo.actors():
        with contextlib.suppress(moo.ActorUnavailable):
            moo.kill(actor.handle)
    assert eventually(lambda: moo.actors() == [])
