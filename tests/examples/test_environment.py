# SPDX-License-Identifier: MIT
"""The environment that the settings choose."""

from __future__ import annotations

import torch

from impala import EnvironmentSettings, Spaces


def test_spaces_and_frames_are_those_of_the_settings() -> None:
    cart_pole = EnvironmentSettings("CartPole-v1")
    assert cart_pole.spaces() == Spaces((4,), torch.float32, 2)
    assert not cart_pole.spaces().images and cart_pole.frames_per_step == 1
    game = EnvironmentSettings("ALE/Breakout-v5")
    assert game.spaces() == Spaces((4, 84, 84), torch.uint8, 4)
    assert game.spaces().images and game.frames_per_step == 4
    every = EnvironmentSettings("ALE/Breakout-v5", all_actions=True).spaces()
    assert every.num_actions == 18
