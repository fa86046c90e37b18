# SPDX-License-Identifier: MIT
"""Players, whole games, and pictures of one."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
import torch
from gymnasium.error import DependencyNotInstalled

from mooactor.rl import (
    Camera,
    Player,
    film_game,
    make_environments,
    make_network,
    play_games,
)


def test_each_environment_contributes_one_game() -> None:
    environments = make_environments("CartPole-v1", 12)
    episodes = play_games(environments, Player(None, 2, 12, seed=0), seed=0)
    assert len(episodes) == 12
    assert all(episode.score == episode.steps for episode in episodes)  # 1 a step
    assert 12 < np.mean([episode.score for episode in episodes]) < 40  # random: 22


def test_the_same_seed_plays_the_same_games() -> None:
    environments = make_environments("CartPole-v1", 4)
    network = make_network("mlp", (4,), 2, lstm=True)
    first = play_games(environments, Player(network, 2, 4, seed=3), seed=7)
    again = play_games(environments, Player(network, 2, 4, seed=3), seed=7)
    other = play_games(environments, Player(network, 2, 4, seed=4), seed=8)
    assert first == again != other


def test_log_probabilities_belong_to_the_chosen_actions() -> None:
    network = make_network("mlp", (4,), 3)
    with torch.no_grad():
        network.policy.weight.zero_()
        network.policy.bias.copy_(torch.tensor([0.7, 0.2, 0.1]).log())
    player = Player(network, 3, 3000, seed=0)
    observations = np.zeros((3000, 4), np.float32)
    actions, log_probs = player.choose(observations, np.zeros(3000, np.bool_))
    counts = torch.bincount(actions, minlength=3) / 3000
    torch.testing.assert_close(counts, torch.tensor([0.7, 0.2, 0.1]), atol=0.03, rtol=0)
    expected = torch.tensor([0.7, 0.2, 0.1]).log()[actions]
    torch.testing.assert_close(log_probs, expected)


def test_a_film_shows_one_game_in_colour() -> None:
    environments, camera = (
        make_environments("ALE/Breakout-v5", 1),
        Camera("ALE/Breakout-v5"),
    )
    player = Player(None, environments.num_actions, 1, seed=0)
    pictures = film_game(environments, camera, player, seed=0, max_frames=40)
    assert len(pictures) == 40
    assert {picture.shape for picture in pictures} == {(210, 160, 3)}
    assert not np.array_equal(pictures[10], pictures[30])
    reds, blues = pictures[0][..., 0], pictures[0][..., 2]
    assert not np.array_equal(reds, blues)


def test_a_film_ends_with_its_game() -> None:
    environments, camera = (
        make_environments("ALE/Breakout-v5", 1),
        Camera("ALE/Breakout-v5"),
    )
    player = Player(None, environments.num_actions, 1, seed=1)
    pictures = film_game(environments, camera, player, seed=1, max_frames=3000)
    assert 50 < len(pictures) < 3000


@pytest.mark.skipif(find_spec("pygame") is not None, reason="pygame can draw it")
def test_an_environment_that_cannot_draw_says_so() -> None:
    with pytest.raises(DependencyNotInstalled, match="pygame"):
        Camera("CartPole-v1").reset(seed=0)
