# SPDX-License-Identifier: MIT
"""A broker and hosts on several machines, and the cables between them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.clusters import Cluster, cluster
from tests.conftest import eventually

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    """Hosts b and c; the broker is on a."""
    with cluster("bc", driver="a") as made:
        yield made


def said_of(running: Cluster, host: str, what: str) -> int:
    """How often the broker has said this of a host."""
    assert running.broker is not None
    return sum(f"host {host} has {what}" in line for line in running.broker.lines)


def says_again(running: Cluster, what: str, before: int) -> bool:
    return eventually(lambda: said_of(running, "b", what) > before)


def test_a_cut_that_heals_soon_is_no_news(running: Cluster) -> None:
    before = said_of(running, "b", "left")
    with running.network.cut_off("b"):
        time.sleep(1.0)  # the cut is to last, but less than the patience of 3 s
    with running.network.cut_off("c"):  # and a longer one of another host is news
        assert eventually(lambda: said_of(running, "c", "left"))
    assert eventually(lambda: said_of(running, "c", "joined") == 2)
    assert said_of(running, "b", "left") == before
    assert not any("lost the broker" in line for line in running.members["b"].lines)


@pytest.mark.parametrize("how", ["cut_off", "swallowing"])
def test_a_host_that_is_out_of_reach_is_gone_and_comes_back(
    running: Cluster, how: str
) -> None:
    """Also where packets get lost, and no kernel knows."""
    words = ("b",) if how == "cut_off" else ("b", "a")
    left, joined = (said_of(running, "b", what) for what in ("left", "joined"))
    with getattr(running.network, how)(*words):
        assert says_again(running, "left", left)
        lines = running.members["b"].lines
        assert eventually(lambda: any("lost the broker" in line for line in lines))
    assert says_again(running, "joined", joined)
    assert said_of(running, "c", "joined") <= 2  # it was not concerned
