# SPDX-License-Identifier: MIT
"""Runners: the actions they choose, what they write into an unroll, their state."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from mooactor.rl import (
    EnvRunner,
    Episode,
    Player,
    Unroll,
    load_checkpoint,
    make_environments,
    make_network,
    save_checkpoint,
)

STEPS, SIZE = 8, 3


def make_runner(env: str, seed: int, *, keep_actions: bool = True) -> EnvRunner:
    environments = make_environments(env, SIZE)
    torch.manual_seed(0)
    network = make_network(
        "auto", environments.observation_shape, environments.num_actions, lstm=True
    )
    player = Player(network, environments.num_actions, SIZE, seed)
    return EnvRunner(
        environments, player, slice(1, 1 + SIZE), seed, keep_actions=keep_actions
    )


def zeros(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def play(runner: EnvRunner) -> Unroll:
    shape, core = runner.observations.shape[1:], runner.player.core
    dtype = torch.from_numpy(runner.observations).dtype
    unroll = Unroll.empty(STEPS, SIZE + 2, shape, dtype, core, zeros)
    for row in range(STEPS + 1):
        if row > 0:
            runner.receive(unroll, row - 1)
        runner.observe(unroll, row)
        if row < STEPS:
            runner.send(unroll, row)
    return unroll


def test_it_fills_its_own_columns_only() -> None:
    runner = make_runner("CartPole-v1", 1)
    unroll = play(runner)
    others = [0, SIZE + 1]
    for name in ("observations", "actions", "log_probs", "rewards"):
        assert not getattr(unroll, name)[:, others].any(), name
    assert unroll.observations[:, runner.columns].any(dim=-1).all()
    assert (unroll.rewards[:, runner.columns] == unroll.valid[:, runner.columns]).all()
    assert unroll.environment_s > 0 and unroll.inference_s > 0
    runner.environments.close()


class Brief(gymnasium.Env[Any, int]):
    """Observes its steps. Every second of its games is truncated, after two steps."""

    observation_space = Box(0, 255, (1,), np.float32)
    action_space = Discrete(2)
    games = steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self.games, self.steps = self.games + 1, 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        over, truncated = self.steps == 2, self.games % 2 == 0
        seen = np.full(1, self.steps, np.float32)
        return seen, 1.0, over and not truncated, over and truncated, {}


def test_the_step_after_any_end_only_brings_the_next_game() -> None:
    gymnasium.register("Brief-v0", Brief)
    runner = make_runner("Brief-v0", 1)
    unroll = play(runner)
    rows: dict[str, list[Any]] = {
        name: getattr(unroll, name)[:STEPS, 1].squeeze(-1).int().tolist()
        for name in ("observations", "first", "valid", "terminal", "rewards")
    }
    assert rows == {
        "observations": [0, 1, 2, 0, 1, 2, 0, 1],
        "first": [1, 0, 0, 1, 0, 0, 1, 0],
        "valid": [1, 1, 0, 1, 1, 0, 1, 1],
        "terminal": [0, 1, 0, 0, 0, 0, 0, 1],  # truncated is not terminal
        "rewards": [1, 1, 0, 1, 1, 0, 1, 1],
    }
    assert unroll.episodes == [Episode(2.0, 2)] * 3 * SIZE
    runner.environments.close()
    del gymnasium.registry["Brief-v0"]


def test_what_is_loaded_goes_on_as_what_was_saved() -> None:
    """In the middle of games, and with a policy that remembers."""
    runner, other = (make_runner("ALE/Breakout-v5", seed) for seed in (1, 2))
    play(runner), play(runner), play(other)
    other.load(deepcopy(runner.state()))
    one, two = play(runner), play(other)
    for name in ("observations", "first", "actions", "log_probs", "terminal"):
        assert torch.equal(getattr(one, name), getattr(two, name)), name
    assert one.episodes == two.episodes
    again = other.state()  # a second resume has all of the first
    assert again["actions"].shape == (3 * STEPS, SIZE)
    stateless = make_runner("CartPole-v1", 1, keep_actions=False)
    with pytest.raises(RuntimeError, match="keep_actions=True"):
        stateless.state()
    for each in (runner, other, stateless):
        each.environments.close()


@pytest.mark.slow
def test_a_lost_life_ends_the_return_only_if_it_is_to() -> None:
    ends: dict[bool, Any] = {}
    for life_loss_ends in (True, False):
        runner = make_runner("ALE/Breakout-v5", 3)
        runner._life_loss_ends = life_loss_ends
        ends[life_loss_ends] = sum(
            play(runner).terminal.sum().item() for _ in range(12)
        )
        runner.environments.close()
    assert ends[True] > ends[False]


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
