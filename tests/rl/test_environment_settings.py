# SPDX-License-Identifier: MIT
"""Which environment it is: its spaces, and why there is none."""

from __future__ import annotations

import pytest
import torch

from mooactor.rl import EnvironmentSettings, SettingsError, Spaces


def test_spaces_are_those_of_one_environment() -> None:
    vectors = EnvironmentSettings("CartPole-v1").spaces()
    assert vectors == Spaces((4,), torch.float32, 2) and not vectors.images
    images = EnvironmentSettings("ALE/Breakout-v5").spaces()
    assert images == Spaces((4, 84, 84), torch.uint8, 4) and images.images
    every = EnvironmentSettings("ALE/Breakout-v5", all_actions=True).spaces()
    assert every.num_actions == 18


@pytest.mark.parametrize(("env", "frames"), [("CartPole-v1", 1), ("ALE/Pong-v5", 4)])
def test_a_step_of_an_atari_game_is_four_frames(env: str, frames: int) -> None:
    assert EnvironmentSettings(env).frames_per_step == frames


def test_as_many_are_made_as_asked_for() -> None:
    environments = EnvironmentSettings("CartPole-v1").make(3)
    assert environments.reset(1).shape == (3, 4)
    environments.close()


@pytest.mark.parametrize(
    ("env", "reason"),
    [
        ("Pendulum-v1", "--env Pendulum-v1: only discrete actions"),
        ("ALE/Brakeout-v5", "--env ALE/Brakeout-v5: .*Breakout"),
        ("no_such_module:Env-v0", "--env no_such_module:Env-v0: .*module"),
    ],
)
def test_an_environment_that_cannot_be_used_is_named(env: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        EnvironmentSettings(env).spaces()
