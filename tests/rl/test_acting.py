# SPDX-License-Identifier: MIT
"""Half an actor's environments: what they write into an unroll, and their state."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from mooactor.rl import (
    Episode,
    Half,
    Player,
    Unroll,
    make_environments,
    make_network,
)

STEPS, SIZE = 8, 3


def make_half(env: str, seed: int, *, keep_actions: bool = True) -> Half:
    environments = make_environments(env, SIZE)
    torch.manual_seed(0)
    network = make_network(
        "auto", environments.observation_shape, environments.num_actions, lstm=True
    )
    player = Player(network, environments.num_actions, SIZE, seed)
    return Half(
        environments, player, slice(1, 1 + SIZE), seed, keep_actions=keep_actions
    )


def zeros(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def play(half: Half) -> Unroll:
    shape, core = half.observations.shape[1:], half.player.core
    dtype = torch.from_numpy(half.observations).dtype
    unroll = Unroll.empty(STEPS, SIZE + 2, shape, dtype, core, zeros)
    for row in range(STEPS + 1):
        if row > 0:
            half.receive(unroll, row - 1)
        half.observe(unroll, row)
        if row < STEPS:
            half.send(unroll, row)
    return unroll


def test_it_fills_its_own_columns_only() -> None:
    half = make_half("CartPole-v1", 1)
    unroll = play(half)
    others = [0, SIZE + 1]
    for name in ("observations", "actions", "log_probs", "rewards"):
        assert not getattr(unroll, name)[:, others].any(), name
    assert unroll.observations[:, half.columns].any(dim=-1).all()
    assert (unroll.rewards[:, half.columns] == unroll.valid[:, half.columns]).all()
    assert unroll.environment_s > 0 and unroll.inference_s > 0
    half.environments.close()


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
    half = make_half("Brief-v0", 1)
    unroll = play(half)
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
    half.environments.close()
    del gymnasium.registry["Brief-v0"]


def test_what_is_loaded_goes_on_as_what_was_saved() -> None:
    """In the middle of games, and with a policy that remembers."""
    half, other = (make_half("ALE/Breakout-v5", seed) for seed in (1, 2))
    play(half), play(half), play(other)
    other.load(deepcopy(half.state()))
    one, two = play(half), play(other)
    for name in ("observations", "first", "actions", "log_probs", "terminal"):
        assert torch.equal(getattr(one, name), getattr(two, name)), name
    assert one.episodes == two.episodes
    again = other.state()  # a second resume has all of the first
    assert again["actions"].shape == (3 * STEPS, SIZE)
    stateless = make_half("CartPole-v1", 1, keep_actions=False)
    with pytest.raises(RuntimeError, match="keep_actions=True"):
        stateless.state()
    for each in (half, other, stateless):
        each.environments.close()


@pytest.mark.slow
def test_a_lost_life_ends_the_return_only_if_it_is_to() -> None:
    ends: dict[bool, Any] = {}
    for life_loss_ends in (True, False):
        half = make_half("ALE/Breakout-v5", 3)
        half._life_loss_ends = life_loss_ends
        ends[life_loss_ends] = sum(play(half).terminal.sum().item() for _ in range(12))
        half.environments.close()
    assert ends[True] > ends[False]
