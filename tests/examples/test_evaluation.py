# SPDX-License-Identifier: MIT
"""The policy beside a random one, and a film of a game.

A run of the example films one, see tests/examples/test_impala_runs.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from impala import Camera, EnvironmentSettings
from impala.evaluation import film_game, print_evaluation
from mooactor.rl import Player, make_environments, make_network

CART_POLE = EnvironmentSettings("CartPole-v1")


def test_a_random_policy_is_judged_beside_it(
    session: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    print_evaluation(CART_POLE, make_network("mlp", (4,), 2), 4, [1])
    trained, random = capsys.readouterr().out.splitlines()
    assert trained.startswith("trained policy: return ")
    assert random.startswith("random policy: return ")
    assert random.endswith(" over 4 full games")


def test_a_film_shows_one_game_in_colour() -> None:
    environments = make_environments("ALE/Breakout-v5", 1)
    camera = Camera("ALE/Breakout-v5")
    player = Player(None, environments.num_actions, 1, seed=0)
    pictures = film_game(environments, camera, player, seed=0, max_frames=40)
    assert len(pictures) == 40
    assert {picture.shape for picture in pictures} == {(210, 160, 3)}
    assert not np.array_equal(pictures[10], pictures[30])
    reds, blues = pictures[0][..., 0], pictures[0][..., 2]
    assert not np.array_equal(reds, blues)
