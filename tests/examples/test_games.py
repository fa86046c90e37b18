# SPDX-License-Identifier: MIT
"""Games under way: a supply in a fixed order, actors and learners, saved and loaded."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import mooactor as moo
from impala import games_under_way, load_games_under_way
from mooactor.rl import State, Supply, Unroll, load_checkpoint, save_checkpoint
from tests.rl.test_unroll import assert_same, random_unroll


@moo.actor
class Counting:
    """An actor or a learner that knows how often it was asked."""

    def __init__(self, supply: Supply) -> None:
        self.supply = supply
        self.count = 0
        self.once: Path | None = None

    @moo.method
    def unroll(self, version: int | None = None) -> Unroll:
        self.supply.weights.remote(-1, version).get()
        self.count += 1
        torch.manual_seed(self.count)
        return random_unroll(2, version=self.count)

    @moo.method
    def die_unless(self, once: Path) -> None:
        """Die when the games are asked for, unless there is such a file by then."""
        self.once = once

    @moo.method
    def games(self) -> list[State]:
        if self.once is not None and not self.once.exists():
            self.once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return [{"count": self.count}]

    @moo.method
    def load_games(self, games: list[State]) -> None:
        self.count = games[0]["count"]


def test_what_was_saved_goes_on_as_what_went_on(
    spawn: Callable[..., Any], tmp_path: Path
) -> None:
    def start() -> tuple[Supply, list[Counting], list[Counting]]:
        supply: Supply = spawn(Supply, 100, learners=2, in_order=True)
        actors = [spawn(Counting, supply) for _ in range(2)]
        learners = [spawn(Counting, supply)]
        supply.publish.tell(0, {})
        return supply, actors, learners

    supply, actors, learners = start()
    supply.start.remote(actors).get()
    for learner in (0, 0, 1):
        supply.take.remote(learner, 0).get()
    save_checkpoint(tmp_path, games_under_way(supply, actors, learners))

    other, new_actors, new_learners = start()
    saved = load_checkpoint(tmp_path)
    lanes = load_games_under_way(saved, new_actors, new_learners)
    other.start.remote(new_actors, 0, lanes).get()
    counts = [actor.games() for actor in new_actors]
    assert counts == saved["actors"] and sum(count[0]["count"] for count in counts) == 5
    for learner in (0, 0, 0, 1, 1):
        one, two = (each.take.remote(learner, 0).get() for each in (supply, other))
        assert_same(one.unroll[0].get(), two.unroll[0].get())


def test_an_actor_that_dies_when_it_is_asked_for_its_games_is_asked_again(
    spawn: Callable[..., Any], tmp_path: Path
) -> None:
    supply: Supply = spawn(Supply, 100, in_order=True)
    restarted = moo.on(Counting, restart=moo.Restart())
    actors = [spawn(restarted, supply) for _ in range(2)]
    supply.publish.tell(0, {})
    supply.start.remote(actors).get()
    moo.get(supply.freeze.remote())  # no unroll is lost with it
    actors[1].die_unless(tmp_path / "died")
    saved = games_under_way(supply, actors, [])
    assert (tmp_path / "died").exists()
    assert saved["actors"] == [[{"count": 1}], [{"count": 0}]]
