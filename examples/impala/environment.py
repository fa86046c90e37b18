# SPDX-License-Identifier: MIT
"""`EnvironmentSettings`: the choice of the environment; its spaces, and pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray

from impala.settings import SettingsError, Within
from mooactor.rl import (
    AtariEnvironments,
    EnvironmentFailed,
    Environments,
    GymEnvironments,
    atari_game,
    make_environments,
)

ATARI_FRAME_SKIP = 4


@dataclass(frozen=True)
class Spaces:
    """The observations and actions of an environment.

    Attributes:
      shape: of one observation, ``(C, H, W)`` or ``(D,)``.
      dtype: uint8 for images, float32 for all else.
      num_actions: the actions are 0 to ``num_actions - 1``.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    num_actions: int

    @property
    def images(self) -> bool:
        """Whether observations are images ``(C, H, W)``."""
        return len(self.shape) == 3


@dataclass(frozen=True)
class EnvironmentSettings:
    """The environment to play."""

    env: str = "ALE/Breakout-v5"
    """Any ALE game by its usual id, or any Gymnasium environment that observes a box or
    an image and takes discrete actions. Preprocessing of ALE games is the same whatever
    the id: 84x84 grey, 4 frames skipped and stacked, up to 30 no-ops at the start."""
    sticky: Annotated[float, Within(0, 1)] = 0.0
    """Chance that an ALE game repeats the last action instead of the chosen one."""
    all_actions: bool = False
    """Give ALE games all 18 actions instead of those that matter in the game."""
    restart_environments: bool = False
    """Make an environment anew that raises, or whose observation or reward is not
    finite, and go on. Otherwise the run ends, and says which it was."""

    @property
    def frames_per_step(self) -> int:
        """Emulator frames in one agent step."""
        return ATARI_FRAME_SKIP if atari_game(self.env) else 1

    def make(self, num_envs: int) -> Environments:
        """``num_envs`` environments side by side; see `make_environments`."""
        return make_environments(
            self.env,
            num_envs,
            sticky=self.sticky,
            all_actions=self.all_actions,
            restart=self.restart_environments,
        )

    def camera(self) -> Camera:
        """One more of them, to be filmed."""
        return Camera(self.env, sticky=self.sticky, all_actions=self.all_actions)

    def spaces(self) -> Spaces:
        """The spaces of one such environment, which is made and closed again.

        Raises:
          SettingsError: there is no such environment, or it cannot be used.
        """
        try:
            environments = self.make(1)
        except (
            *(ValueError, ImportError, EnvironmentFailed),
            gymnasium.error.Error,
        ) as error:
            raise SettingsError(f"--env {self.env}: {error}") from error
        environments.close()
        images = len(environments.observation_shape) == 3
        return Spaces(
            environments.observation_shape,
            torch.uint8 if images else torch.float32,
            environments.num_actions,
        )


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
