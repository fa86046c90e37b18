# SPDX-License-Identifier: MIT
"""Environments that fail, at once or later: ``tests.examples.odd_envs:Raises-v0``."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv


class Raises(CartPoleEnv):
    """A CartPole that raises at some step, once; each environment its own."""

    left = 150  # steps

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.left -= 1
        if self.left == 0:
            raise KeyError("the track is gone")
        return super().step(action)


class Picture(gymnasium.Env[Any, Any]):
    """Shows images of a size and type that nothing can be learned from."""

    def __init__(self, size: int, dtype: Any) -> None:
        low, high = (0, 255) if dtype is np.uint8 else (0.0, 1.0)
        shape = (size, size, 3)
        self.observation_space = gymnasium.spaces.Box(low, high, shape, dtype)
        self.action_space = gymnasium.spaces.Discrete(2)


gymnasium.register("Tiny-v0", Picture, kwargs={"size": 7, "dtype": np.uint8})
gymnasium.register("Float-v0", Picture, kwargs={"size": 84, "dtype": np.float32})
gymnasium.register("Raises-v0", Raises, max_episode_steps=100)
