# SPDX-License-Identifier: MIT
"""An environment that keeps its own time: ``tests.examples.paced_env:Paced-v0``."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

STEPS_PER_S = 50


class Paced(CartPoleEnv):
    """A CartPole on a real track: a step takes its time, and hardly any processor."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        time.sleep(1 / STEPS_PER_S)  # what it is for: a step that takes its time
        return super().step(action)


gymnasium.register("Paced-v0", Paced, max_episode_steps=500)
