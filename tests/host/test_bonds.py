# SPDX-License-Identifier: MIT
"""Links in a home whose actors have no processes: who ends with whom."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mooactor.host.lifetimes import Supervised
from mooactor.host.protocol import Exited
from mooactor.process.protocol import Link
from mooactor.process.supervision import Restart
from tests.host.lone_homes import LoneHome

KILLED, EXITED = Exited(0, 9, [], False), Exited(0, 0, [], False)


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[LoneHome]:
    made = LoneHome(tmp_path, "", here="d", local=True)
    yield made
    made.close()


def link(lone: LoneHome, one: Supervised, other: Supervised) -> None:
    lone.ask(Link(one.id, other.id, rid=1))


def all_linked(lone: LoneHome, count: int, **options: Any) -> list[Supervised]:
    """Actors of which each is linked with each."""
    actors = [lone.spawn(1 + number, **options) for number in range(count)]
    for one, other in itertools.combinations(actors, 2):
        link(lone, one, other)
    return actors


def end(lone: LoneHome, actor: Supervised, how: Exited = KILLED) -> list[Supervised]:
    """Its process has ended, and so have all those that the home kills for it. The
    actors whose processes were killed."""
    assert actor.process is not None
    lone.home.happened(actor.process, how)
    killed = [lone.home.by_line[process.line] for process in lone.here.killed]
    for one in killed:
        assert one.process is not None
        lone.home.happened(one.process, KILLED)
    assert len(lone.here.killed) == len(killed), "their deaths lead to nobody"
    lone.here.killed.clear()
    return killed


@pytest.mark.parametrize("how", [KILLED, EXITED], ids=["killed", "exit 0"])
def test_an_abnormal_end_is_that_of_all_that_are_linked_and_of_nobody_else(
    tmp_path: Path, how: Exited
) -> None:
    for seed in range(20):
        rng, lone = random.Random(seed), LoneHome(tmp_path, "", here="d", local=True)
        again = {"policy": Restart(5, backoff=60.0)} if seed % 2 else {}
        actors = [lone.spawn(1 + number, **again) for number in range(12)]
        pairs = rng.sample(list(itertools.combinations(range(12), 2)), 9)
        for one, other in pairs:
            link(lone, actors[one], actors[other])
        reached = {0}
        for _ in actors:  # the slow, obvious answer
            reached |= {n for pair in pairs if reached & set(pair) for n in pair}

        killed = end(lone, actors[0], how)

        expected = {actors[n].id for n in reached - {0}} if how is KILLED else set()
        assert {one.id for one in killed} == expected, f"seed {seed}"
        assert all(one.fate is not None and one.fate.kind == "link" for one in killed)
        lone.close()


def test_the_end_of_the_session_spreads_nothing(lone: LoneHome) -> None:
    first, *_ = all_linked(lone, 3)
    lone.home.ending = True

    assert end(lone, first) == []


def test_actors_that_come_back_are_still_linked(lone: LoneHome) -> None:
    first, second, third = all_linked(lone, 3, policy=Restart(5))
    for one, *others in ((first, second, third), (second, first, third)):
        killed = end(lone, one)
        assert {other.id for other in killed} == {other.id for other in others}
        lone.loop.serve(0.0)
        assert all(actor.process for actor in (first, second, third))
