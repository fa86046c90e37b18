# SPDX-License-Identifier: MIT
"""The supply of unrolls: who is asked, who gets what, and what if an actor dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from mooactor.rl import Supply
from mooactor.rl.supply import is_away
from tests.conftest import eventually
from tests.gates import wait_at


@moo.actor
class Source:
    """Stands where an actor would, and plays numbered unrolls."""

    def __init__(self, index: int, supply: Any) -> None:
        self.index = index
        self.supply = supply
        self.born = moo.submit(supply.enlist, index).get()
        self.version = -1
        self.sent: list[bool] = []  # whether weights came with each unroll
        self.gate: str | None = None
        self.doomed = False

    def wait_at(self, gate: str | None) -> None:
        """Play nothing until there is a file of this name."""
        self.gate = gate

    def unroll(self, version: int | None = None) -> dict[str, Any]:
        if self.gate is not None:
            wait_at(self.gate)
        if self.doomed:
            os.kill(os.getpid(), signal.SIGKILL)
        found = moo.submit(self.supply.weights, self.version, version).get()
        self.version, weights = found
        self.sent.append(weights is not None)
        if weights == "raise":
            raise KeyError("of the environment")
        if weights == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        self.doomed |= weights == "play once"
        return {
            "actor": self.index,
            "born": self.born,
            "pid": os.getpid(),
            "number": len(self.sent),
            "version": self.version,
        }

    def history(self) -> list[bool]:
        return self.sent


unplaced = moo.Cause("exception", exception=moo.PlacementError("no host"))
Start = Callable[..., tuple[Any, list[Any]]]
THREE_TIMES = moo.Restart(max=3, within=60)


@pytest.fixture
def start(spawn: Callable[..., Any]) -> Start:
    """A supply at version 0, and its sources, which are replaced when they die."""

    def start(
        count: int,
        in_flight: int,
        *,
        restart: moo.Restart | None = THREE_TIMES,
        **options: Any,
    ) -> tuple[Any, list[Any]]:
        supply = spawn(Supply, in_flight, **options)
        on = moo.on(Source, restart=restart) if restart else Source
        sources = [spawn(on, index, supply) for index in range(count)]
        supply.publish.tell(0, "weights 0")
        moo.submit(supply.start, sources).get()
        return supply, sources

    return start


def take(supply: Any, learner: int = 0, version: int = 0) -> dict[str, Any]:
    taken = moo.submit(supply.take, learner, version).get(60)
    unroll: dict[str, Any] = taken.unroll[0].get()
    return unroll


def test_an_actor_that_is_added_plays_with_the_others_unless_it_cannot_begin(
    start: Start, spawn: Callable[..., Any], capfd: pytest.CaptureFixture[str]
) -> None:
    supply, _ = start(1, 4)
    take(supply)
    dead, added = spawn(Source, 1, supply), spawn(Source, 2, supply)
    moo.kill(dead)
    moo.submit(supply.add, [dead, added]).get()
    for actor in (2, 0, 2, 0):  # both play on
        while (taken := take(supply)["actor"]) != actor:
            assert taken != 1
    assert eventually(lambda: "is left out" in capfd.readouterr().err)


def test_an_unroll_begins_with_the_newest_weights_which_are_sent_once(
    start: Start, tmp_path: Any
) -> None:
    """Also one whose call was sent before they were published."""
    gate = tmp_path / "open"
    supply, (source,) = start(1, 2)
    assert eventually(lambda: len(source.history()) == 2)
    source.wait_at(str(gate))
    for _ in range(2):
        assert take(supply)["version"] == 0
    moo.submit(supply.publish, 7, "weights 7").get()
    gate.touch()  # for two calls that were sent before that
    assert [take(supply)["version"] for _ in range(2)] == [7, 7]
    assert source.history()[:4] == [True, False, True, False]


def test_no_more_is_in_flight_than_may_be(start: Start) -> None:
    supply, sources = start(3, in_flight := 4)

    def played() -> int:
        return sum(len(source.history()) for source in sources)

    for taken in range(5):
        assert eventually(lambda: played() == in_flight + taken)
        take(supply)
    assert eventually(lambda: played() == in_flight + 5)
    assert played() == in_flight + 5


@pytest.mark.slow
def test_a_slow_actor_delays_no_learner(start: Start, tmp_path: Any) -> None:
    """None of them has actors of its own."""
    supply, sources = start(4, 16, learners=3)
    gate = tmp_path / "open"
    sources[0].wait_at(str(gate))
    for _ in range(16):  # what it had played before
        take(supply)
    actors = [take(supply, turn % 3)["actor"] for turn in range(60)]
    assert 0 not in actors[2:]
    gate.touch()
    while take(supply, 2)["actor"] != 0:
        pass


def test_in_order_nothing_depends_on_time(start: Start, tmp_path: Path) -> None:
    """An unroll is played with the version that it was asked for."""
    supply, sources = start(3, 100, learners=2, in_order=True)
    seen = {0: [take(supply, 0) for _ in range(6)], 1: [take(supply, 1) for _ in "abc"]}
    assert [unroll["actor"] for unroll in seen[0]] == [0, 2, 0, 2, 0, 2]
    assert [unroll["actor"] for unroll in seen[1]] == [1, 1, 1]
    assert [unroll["number"] for unroll in seen[0]] == [1, 1, 2, 2, 3, 3]
    # Each asks for the next unroll, with weights that are still to come.
    assert take(supply, 1, 1)["version"] == 0
    supply.publish.tell(1, "weights 1")
    supply.publish.tell(2, "weights 2")
    assert [take(supply, 1, 2)["version"] for _ in range(2)] == [1, 2]
    assert [take(supply, 0, 2)["version"] for _ in range(3)] == [0, 0, 2]
    sources[1].wait_at(gate := str(tmp_path / "open"))
    assert take(supply, 1, 2)["version"] == 2
    moo.submit(supply.publish, 3, "weights 3").get()
    Path(gate).touch()  # for a call that was sent before that
    assert take(supply, 1, 3)["version"] == 2


def test_it_goes_on_when_an_actor_is_killed(start: Start) -> None:
    supply, _ = start(2, 4)
    killed = take(supply)
    os.kill(killed["pid"], signal.SIGKILL)
    while True:
        taken = take(supply)
        if taken["actor"] == killed["actor"] and taken["pid"] != killed["pid"]:
            break
    assert taken["born"] == 1  # so its games have other seeds
    assert moo.submit(supply.take).get().lost > 0


def test_it_gives_up_on_an_actor_that_stays_away(start: Start) -> None:
    supply, _ = start(1, 2, restart=None)
    os.kill(take(supply)["pid"], signal.SIGKILL)
    for _ in range(2):  # every learner is told
        with pytest.raises(moo.ActorDied, match="signal 9"):
            while True:
                take(supply)


def test_an_error_of_an_environment_is_raised_and_not_tried_again(
    start: Start,
) -> None:
    supply, (source,) = start(1, 2)
    take(supply)
    supply.publish.tell(1, "raise")
    for _ in range(2):
        with pytest.raises(KeyError, match="of the environment"):
            while True:
                take(supply)
    assert source.history().count(True) == 2


def test_an_actor_is_away_while_its_host_is_and_it_may_come_back() -> None:
    for error, away in (
        (moo.ActorRestarted("", cause=moo.Cause("host", host="b: lost")), True),
        (moo.ActorRestarted("", cause=unplaced), True),
        (moo.ActorRestarted("", cause=moo.Cause("signal", signal=9)), False),
        (moo.ActorDied("", cause=moo.Cause("host", host="b: lost")), False),
        (moo.ActorUnavailable(""), False),
    ):
        assert is_away(error) is away
