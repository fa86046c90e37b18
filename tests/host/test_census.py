# SPDX-License-Identifier: MIT
"""A member's view of the others, whatever happens to brokers."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import pytest

from mooactor.host.membership import SETTLED_S, Census
from tests.cluster.clusters import Cluster
from tests.cluster.rows import row


@pytest.fixture
def census() -> Census:
    return Census()


def names(census: Census) -> list[str]:
    return sorted(found.name for found in census.rows())


def test_the_first_broker_tells_all_and_then_each_change(census: Census) -> None:
    assert census.begin("x", [row("a"), row("b")], 0.0) == [row("a"), row("b")]
    assert census.put("x", row("a")) is False
    assert census.put("x", row("a", actors=1)) is True
    assert census.put("x", row("c")) is True
    assert census.remove("x", "node-of-b") == row("b")
    assert census.remove("x", "node-of-b") is None
    assert names(census) == ["a", "c"]
    assert census.hosts()["a"].actors == 1


def test_homes_are_members_and_no_hosts(census: Census) -> None:
    census.begin("x", [row("a", kind="home")], 0.0)
    assert census.hosts() == {} and names(census) == ["a"]


def test_a_broker_that_starts_anew_makes_nobody_vanish(census: Census) -> None:
    census.begin("x", [row("a"), row("b")], 0.0)
    census.lose("x")
    assert census.settle(1000.0) == []  # no broker is there to ask
    assert census.begin("x", [], 1000.0) == []
    assert census.put("x", row("a")) is False  # it is told again
    assert census.settle(1000.0 + SETTLED_S - 0.01) == []
    assert names(census) == ["a", "b"]
    assert census.settle(1000.0 + SETTLED_S) == [row("b")]
    assert names(census) == ["a"]


def test_a_member_is_gone_when_no_broker_has_it(census: Census) -> None:
    census.begin("x", [row("a")], 0.0)
    assert census.begin("y", [row("a")], 0.0) == []
    assert census.remove("x", "node-of-a") is None
    assert census.settle(100.0) == []
    assert census.remove("y", "node-of-a") == row("a")


def test_a_stand_by_keeps_what_the_lost_broker_knew(census: Census) -> None:
    census.begin("x", [row("a"), row("b")], 0.0)
    census.begin("y", [row("a")], 0.0)
    census.lose("x")
    assert census.settle(1.0) == []
    assert census.settle(SETTLED_S) == [row("b")]
    assert names(census) == ["a"]


def test_a_host_that_was_started_again_is_another_member(census: Census) -> None:
    census.begin("x", [row("a", "old")], 0.0)
    assert census.put("x", row("a", "new"))
    assert census.remove("x", "old") == row("a", "old")
    assert census.hosts() == {"a": row("a", "new")}


def test_a_broker_that_is_lost_vouches_for_nobody_any_more(tmp_path: Path) -> None:
    with contextlib.closing(Cluster(tmp_path)) as cluster:
        first, address = cluster.broker()
        _, other = cluster.broker("--standby-of", address)
        a, b = (cluster.member(name, address, other) for name in "ab")
        assert cluster.until(lambda: len(a.joined) == len(b.joined) == 2)
        first.signal(signal.SIGKILL)
        assert cluster.until(lambda: a.lost)
        cluster.leave(b)
        assert cluster.until(lambda: [name for name, _ in a.gone] == ["b"])
        assert a.names() == ["a"]
