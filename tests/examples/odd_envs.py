# SPDX-License-Identifier: MIT
"""Environments that fail, at once or later: ``tests.examples.odd_envs:Raises-v0``."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv

FAILS_AFTER = 150  # steps; each environment of its own


class Odd(CartPoleEnv):
    """A CartPole whose ``what`` goes wrong at some step, once."""

    def __init__(self, what: str, **options: Any) -> None:
        super().__init__(**options)
        self.what = what
        self.left = FAILS_AFTER

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        self.left -= 1
        if self.left == 0:
            if self.what == "raise":
                raise KeyError("the track is gone")
            if self.what == "reward":
                reward = math.nan
            else:
                observation = observation * math.inf
        return observation, reward, terminated, truncated, info


class Picture(gymnasium.Env[Any, Any]):
    """Shows images of a size and type that nothing can be learned from."""

    def __init__(self, size: int, dtype: Any) -> None:
        low, high = (0, 255) if dtype is np.uint8 else (0.0, 1.0)
        shape = (size, size, 3)
        self.observation_space = gymnasium.spaces.Box(low, high, shape, dtype)
        self.action_space = gymnasium.spaces.Discrete(2)


gymnasium.register("Tiny-v0", Picture, kwargs={"size": 7, "dtype": np.uint8})
gymnasium.register("Float-v0", Picture, kwargs={"size": 84, "dtype": np.float32})
for name, what in (("Raises", "raise"), ("Nan", "reward"), ("Inf", "observation")):
    gymnasium.register(f"{name}-v0", Odd, max_episode_steps=100, kwargs={"what": what})
