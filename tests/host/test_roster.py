# SPDX-License-Identifier: MIT
"""A member's view of the others, whatever happens to brokers."""

from __future__ import annotations

import pytest

from mooactor.host.roster import SETTLED_S, Roster
from tests.cluster.rows import row


@pytest.fixture
def roster() -> Roster:
    return Roster()


def names(roster: Roster) -> list[str]:
    return sorted(found["name"] for found in roster.rows())


def test_the_first_broker_tells_all_and_then_each_change(roster: Roster) -> None:
    assert roster.begin("x", [row("a"), row("b")], 0.0) == [row("a"), row("b")]
    assert roster.put("x", row("a")) is False
    assert roster.put("x", row("a", actors=1)) is True
    assert roster.put("x", row("c")) is True
    assert roster.remove("x", "node-of-b") == row("b")
    assert roster.remove("x", "node-of-b") is None
    assert names(roster) == ["a", "c"]
    assert roster.hosts()["a"]["actors"] == 1


def test_homes_are_members_and_no_hosts(roster: Roster) -> None:
    roster.begin("x", [row("a", kind="home")], 0.0)
    assert roster.hosts() == {} and names(roster) == ["a"]


def test_a_broker_that_starts_anew_makes_nobody_vanish(roster: Roster) -> None:
    roster.begin("x", [row("a"), row("b")], 0.0)
    roster.lose("x")
    assert roster.settle(1000.0) == []  # no broker is there to ask
    assert roster.begin("x", [], 1000.0) == []
    assert roster.put("x", row("a")) is False  # it is told again
    assert roster.settle(1000.0 + SETTLED_S - 0.01) == []
    assert names(roster) == ["a", "b"]
    assert roster.settle(1000.0 + SETTLED_S) == [row("b")]
    assert names(roster) == ["a"]


def test_a_member_is_gone_when_no_broker_has_it(roster: Roster) -> None:
    roster.begin("x", [row("a")], 0.0)
    assert roster.begin("y", [row("a")], 0.0) == []
    assert roster.remove("x", "node-of-a") is None
    assert roster.settle(100.0) == []
    assert roster.remove("y", "node-of-a") == row("a")


def test_a_stand_by_keeps_what_the_lost_broker_knew(roster: Roster) -> None:
    roster.begin("x", [row("a"), row("b")], 0.0)
    roster.begin("y", [row("a")], 0.0)
    roster.lose("x")
    assert roster.settle(1.0) == []
    assert roster.settle(SETTLED_S) == [row("b")]
    assert names(roster) == ["a"]


def test_a_host_that_was_started_again_is_another_member(roster: Roster) -> None:
    roster.begin("x", [row("a", "old")], 0.0)
    assert roster.put("x", row("a", "new"))
    assert roster.remove("x", "old") == row("a", "old")
    assert roster.hosts() == {"a": row("a", "new")}
