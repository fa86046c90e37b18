# SPDX-License-Identifier: MIT
"""Players, whole games, and pictures of one."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.error import DependencyNotInstalled

from mooactor.rl import (
    Camera,
    Player,
    film_game,
    load_checkpoint,
    make_environments,
    make_network,
    play_games,
    save_checkpoint,
)


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


@pytest.mark.parametrize("lstm", [False, True])
def test_a_loaded_player_goes_on_with_the_same_actions(
    lstm: bool, tmp_path: Path
) -> None:
    network = make_network("mlp", (4,), 3, lstm=lstm)
    rows = np.random.default_rng(0).normal(size=(40, 8, 4)).astype(np.float32)
    first = np.zeros(8, np.bool_)

    def choose(player: Player, start: int) -> list[torch.Tensor]:
        chosen = [player.choose(row, first) for row in rows[start : start + 20]]
        return [torch.stack(parts) for parts in zip(*chosen, strict=True)]

    player = Player(network, 3, 8, seed=1)
    choose(player, 0)
    save_checkpoint(tmp_path, {"player": player.state()})
    expected = choose(player, 20)

    loaded = Player(network, 3, 8, seed=2)
    assert not torch.equal(choose(loaded, 20)[0], expected[0])
    loaded.load(load_checkpoint(tmp_path)["player"])
    for ours, others in zip(choose(loaded, 20), expected, strict=True):
        assert torch.equal(ours, others)


def test_a_state_of_another_batch_is_refused_and_changes_nothing() -> None:
    network = make_network("mlp", (4,), 3, lstm=True)
    player = Player(network, 3, 2, seed=1)
    before = player.state()
    with pytest.raises(ValueError, match=r"core of shape \[2, 5, 64\].*\[2, 2, 64\]"):
        player.load(Player(network, 3, 5, seed=2).state())
    assert torch.equal(player.state()["generator"], before["generator"])


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


@pytest.mark.skipif(find_spec("pygame") is not None, reason="pygame can draw it")
def test_an_environment_that_cannot_draw_says_so() -> None:
    with pytest.raises(DependencyNotInstalled, match="pygame"):
        Camera("CartPole-v1").reset(seed=0)
