# SPDX-License-Identifier: MIT
"""Full games, here and in processes of their own."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

from mooactor.rl import Player, evaluate, make_environments, make_network, play_games


def test_each_environment_contributes_one_game_the_same_for_a_seed() -> None:
    environments = make_environments("CartPole-v1", 12)
    episodes = play_games(environments, Player(None, 2, 12, seed=0), seed=0)
    assert len(episodes) == 12
    assert all(episode.score == episode.steps for episode in episodes)  # 1 a step
    assert 12 < np.mean([episode.score for episode in episodes]) < 40  # random: 22
    network = make_network("mlp", (4,), 2, lstm=True)
    first, again, other = (
        play_games(environments, Player(network, 2, 12, seed=seed), seed=seed)
        for seed in (3, 3, 4)
    )
    assert first == again != other


def test_each_process_plays_its_share_with_the_weights_it_was_sent(
    session: Any,
) -> None:
    """As games played here, by the same network and with the same seeds."""
    cart_poles = partial(make_environments, "CartPole-v1")
    torch.manual_seed(1)
    network = make_network("mlp", (4,), 2, lstm=True)
    scores = evaluate(cart_poles, network, 5, [11, 12])
    expected = []
    for games, seed in ((3, 11), (2, 12)):
        environments, player = cart_poles(games), Player(network, 2, games, seed)
        expected += [game.score for game in play_games(environments, player, seed)]
        environments.close()
    assert scores == expected
