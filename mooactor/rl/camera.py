# SPDX-License-Identifier: MIT
"""Pictures of a game for people, beside the policy's own observations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mooactor.rl.backends import AtariEnvironments, GymEnvironments
from mooactor.rl.env_ids import atari_game
from mooactor.rl.environments import Environments


class Camera:
    """A second environment in colour: same seed and actions, hence the same game."""

    def __init__(
        self, env_id: str, *, sticky: float = 0.0, all_actions: bool = False
    ) -> None:
        game = atari_game(env_id)
        self._environments: Environments
        if game is None:
            self._environments = GymEnvironments(env_id, 1, render_mode="rgb_array")
        else:
            self._environments = AtariEnvironments(
                game, 1, sticky=sticky, all_actions=all_actions, rgb=True
            )

    def reset(self, seed: int) -> NDArray[np.uint8]:
        """Start the game of ``seed``; its first picture, ``[H, W, 3]``."""
        return self._picture(self._environments.reset(seed))

    def step(self, actions: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Take ``actions`` ``[1]``; the picture after them."""
        self._environments.send(actions)
        return self._picture(self._environments.recv().observations)

    def close(self) -> None:
        """Free the environment. Closing twice does nothing."""
        self._environments.close()

    def _picture(self, observations: NDArray[Any]) -> NDArray[np.uint8]:
        if isinstance(self._environments, AtariEnvironments):
            return np.ascontiguousarray(np.moveaxis(observations[0], 0, -1))
        rendered = self._environments.vector.render()
        if rendered is None:
            raise RuntimeError(
                "the environment gave no picture: use one that renders as rgb_array"
            )
        return np.asarray(rendered[0], np.uint8)
