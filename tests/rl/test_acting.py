# SPDX-License-Identifier: MIT
"""Half an actor's environments: what they write into an unroll, and their state."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

from mooactor.rl import (
    Half,
    Player,
    Unroll,
    empty_unroll,
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


def play(half: Half) -> Unroll:
    shape = half.observations.shape[1:]
    dtype = torch.from_numpy(half.observations).dtype
    unroll = Unroll.empty(
        STEPS,
        SIZE + 2,
        shape,
        dtype,
        half.player.core,
        lambda s, t: torch.zeros(s, dtype=t),
    )
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


@pytest.mark.slow
@pytest.mark.parametrize("env", ["CartPole-v1", "ALE/Breakout-v5"])
def test_what_is_loaded_goes_on_as_what_was_saved(env: str) -> None:
    """In the middle of games, and with a policy that remembers."""
    half, other = make_half(env, 1), make_half(env, 2)
    for _ in range(5):
        play(half)
    play(other)
    other.load(deepcopy(half.state()))
    for _ in range(3):
        one, two = play(half), play(other)
        for name in ("observations", "first", "actions", "log_probs", "terminal"):
            assert torch.equal(getattr(one, name), getattr(two, name)), name
        assert one.episodes == two.episodes
    again = other.state()  # a second resume has all of the first
    assert again["actions"].shape == (8 * STEPS, SIZE)
    for each in (half, other):
        each.environments.close()


def test_an_empty_unroll_has_room_for_both_halves() -> None:
    halves = [make_half("CartPole-v1", seed) for seed in (1, 2)]
    play(halves[1])
    unroll = empty_unroll(halves, STEPS, lambda s, t: torch.zeros(s, dtype=t))
    assert unroll.observations.shape == (STEPS + 1, 2 * SIZE, 4)
    assert unroll.observations.dtype == torch.float32
    cores = [half.player.core for half in halves]
    assert torch.equal(unroll.core, torch.cat(cores, dim=1)) and cores[1].any()
    for half in halves:
        half.environments.close()


def test_without_its_actions_it_has_no_state() -> None:
    half = make_half("CartPole-v1", 1, keep_actions=False)
    with pytest.raises(RuntimeError, match="keep_actions=True"):
        half.state()
    half.environments.close()


@pytest.mark.slow
def test_a_lost_life_ends_the_return_only_if_it_is_to() -> None:
    ends: dict[bool, Any] = {}
    for life_loss_ends in (True, False):
        half = make_half("ALE/Breakout-v5", 3)
        half._life_loss_ends = life_loss_ends
        ends[life_loss_ends] = sum(play(half).terminal.sum().item() for _ in range(12))
        half.environments.close()
    assert ends[True] > ends[False]
    assert np.isfinite(ends[False])
