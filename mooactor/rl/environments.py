# SPDX-License-Identifier: MIT
"""Batches of environments that are told to step and asked for the outcome later.

`make_environments` gives any ALE game ale-py's C++ vectoriser, whose threads emulate
between `send` and `recv`, and any other Gymnasium id the synchronous vectoriser. Both
look the same from here: next-step autoreset, images with channels first, unclipped
rewards, discrete actions.
"""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray


class Outcome(NamedTuple):
    """One step of a batch of B environments.

    ``observations`` ``[B, …]`` (uint8 images with channels first, or float32) are new
    arrays, never overwritten. ``rewards`` ``[B]`` float32 are unclipped. ``lost_life``
    ``[B]`` is set where a life went but the game did not end. After ``terminated`` or
    ``truncated`` ``[B]`` the next step ignores its action, and brings the first
    observation of the next episode with reward 0 and no flag.
    """

    observations: NDArray[Any]
    rewards: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    lost_life: NDArray[np.bool_]


class Environments(ABC):
    """B environments behind `send` and `recv`, which must alternate.

    ale-py accepts two sends in a row and acts on stale environments; here the second
    raises `RuntimeError`, and so does a `recv` with nothing sent.
    """

    def __init__(self, vector: VectorEnv[Any, Any, Any]) -> None:
        mode = vector.metadata.get("autoreset_mode")
        if mode != AutoresetMode.NEXT_STEP:
            raise ValueError(f"autoreset mode must be NEXT_STEP, but it is {mode}")
        self.vector = vector
        self.num_envs: int = vector.num_envs
        self.num_actions = _count_actions(vector.single_action_space)
        self._sent = False
        self._ready = False

    @property
    @abstractmethod
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of one observation: ``(C, H, W)`` or ``(D,)``."""

    @property
    def observation_dtype(self) -> np.dtype[Any]:
        """uint8 for images, float32 for all else."""
        images = len(self.observation_shape) == 3
        return np.dtype(np.uint8 if images else np.float32)

    def reset(self, seed: int) -> NDArray[Any]:
        """Start all environments anew, seeded ``seed … seed + B - 1``."""
        observations, infos = self.vector.reset(seed=seed)
        self._sent, self._ready = False, True
        self._note_lives(infos)
        return self._convert(observations)

    def send(self, actions: NDArray[np.int64]) -> None:
        """Start one step with ``actions`` ``[B]``; returns at once where it can."""
        if not self._ready:
            raise RuntimeError("reset the environments before the first send")
        if self._sent:
            raise RuntimeError("send called twice in a row: recv the outcome first")
        self._send(actions)
        self._sent = True

    def recv(self) -> Outcome:
        """Wait for the step that `send` started."""
        if not self._sent:
            raise RuntimeError("recv called with nothing sent: send actions first")
        observations, rewards, terminated, truncated, infos = self._recv()
        self._sent = False
        return Outcome(
            self._convert(observations),
            np.asarray(rewards, np.float32),
            np.asarray(terminated, np.bool_),
            np.asarray(truncated, np.bool_),
            self._note_lives(infos),
        )

    def close(self) -> None:
        """Free the environments. Closing twice does nothing."""
        self.vector.close()

    @abstractmethod
    def _send(self, actions: NDArray[np.int64]) -> None: ...

    @abstractmethod
    def _recv(self) -> tuple[Any, Any, Any, Any, dict[str, Any]]: ...

    @abstractmethod
    def _convert(self, observations: NDArray[Any]) -> NDArray[Any]: ...

    def _note_lives(self, infos: dict[str, Any]) -> NDArray[np.bool_]:
        """Which environments lost a life since the last call; none where not known."""
        return np.zeros(self.num_envs, np.bool_)


class AtariEnvironments(Environments):
    """One ALE game, preprocessed as usual: 84x84 grey, 4 frames skipped and stacked.

    The maximum of the last two frames is taken, up to 30 no-ops start a game, rewards
    are not clipped and a game is all its lives. ``rgb`` gives one ``[3, 210, 160]``
    frame instead, for people; the same seed and actions give the same game.
    """

    def __init__(
        self,
        game: str,
        num_envs: int,
        *,
        threads: int = 1,
        sticky: float = 0.0,
        all_actions: bool = False,
        rgb: bool = False,
    ) -> None:
        from ale_py.vector_env import AtariVectorEnv

        vector = AtariVectorEnv(
            game,
            num_envs,
            num_threads=threads,
            repeat_action_probability=sticky,
            full_action_space=all_actions,
            grayscale=not rgb,
            reward_clipping=False,
            use_fire_reset=False,
            img_height=210 if rgb else 84,
            img_width=160 if rgb else 84,
            stack_num=1 if rgb else 4,
            autoreset_mode=AutoresetMode.NEXT_STEP,
        )
        super().__init__(vector)
        self._rgb = rgb
        self._lives = np.zeros(num_envs, np.int64)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        return (3, 210, 160) if self._rgb else (4, 84, 84)

    def _send(self, actions: NDArray[np.int64]) -> None:
        self.vector.send(actions)  # type: ignore[attr-defined]

    def _recv(self) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        outcome: tuple[Any, Any, Any, Any, dict[str, Any]] = self.vector.recv()  # type: ignore[attr-defined]
        return outcome

    def _convert(self, observations: NDArray[Any]) -> NDArray[Any]:
        return np.moveaxis(observations[:, 0], -1, 1) if self._rgb else observations

    def _note_lives(self, infos: dict[str, Any]) -> NDArray[np.bool_]:
        lives = np.asarray(infos["lives"], np.int64)
        lost = (lives < self._lives) & (lives > 0)
        self._lives = lives.copy()
        return lost


class GymEnvironments(Environments):
    """Any Gymnasium environment with a box or image observation, stepped in `recv`."""

    def __init__(self, env_id: str, num_envs: int, **options: Any) -> None:
        super().__init__(
            gymnasium.make_vec(
                env_id, num_envs=num_envs, vectorization_mode="sync", **options
            )
        )
        space = self.vector.single_observation_space
        if not isinstance(space, Box):
            raise ValueError(
                f"{env_id} observes {space}; only Box spaces are supported"
            )
        self._space = space
        self._images = space.dtype == np.uint8 and len(space.shape) in (2, 3)
        self._actions: NDArray[np.int64] | None = None

    @property
    def observation_shape(self) -> tuple[int, ...]:
        if not self._images:
            return (int(np.prod(self._space.shape)),)
        return self._channels_first(np.empty((1, *self._space.shape))).shape[1:]

    def _send(self, actions: NDArray[np.int64]) -> None:
        self._actions = actions

    def _recv(self) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        return self.vector.step(self._actions)

    def _convert(self, observations: NDArray[Any]) -> NDArray[Any]:
        if self._images:
            return self._channels_first(observations)
        return observations.reshape(self.num_envs, -1).astype(np.float32)

    def _channels_first(self, images: NDArray[Any]) -> NDArray[Any]:
        """``[B, H, W]`` gains a channel; ``[B, H, W, C]`` moves it; C is the least."""
        if images.ndim == 3:
            return images[:, None]
        last_is_least = images.shape[-1] < min(images.shape[1:-1])
        return np.moveaxis(images, -1, 1) if last_is_least else images


def atari_game(env_id: str) -> str | None:
    """The ROM's name (``"breakout"``) behind an ALE id, or None for any other id.

    Raises:
      gymnasium.error.Error: no such environment is registered.
      ModuleNotFoundError: an ALE id, and ale-py is not installed.
    """
    if importlib.util.find_spec("ale_py") is not None:
        import ale_py

        gymnasium.register_envs(ale_py)
    elif env_id.startswith("ALE/"):
        raise ModuleNotFoundError(f"{env_id} needs ale-py: pip install mooactor[atari]")
    spec = gymnasium.spec(env_id)
    entry = spec.entry_point
    is_atari = isinstance(entry, str) and entry.startswith("ale_py")
    return str(spec.kwargs["game"]) if is_atari else None


def make_environments(
    env_id: str,
    num_envs: int,
    *,
    threads: int = 1,
    sticky: float = 0.0,
    all_actions: bool = False,
) -> Environments:
    """Make ``num_envs`` environments of any ALE or Gymnasium id.

    ``threads``, ``sticky`` (the chance that ALE repeats the last action) and
    ``all_actions`` (all 18 instead of the game's own) matter to ALE games only.
    """
    game = atari_game(env_id)
    if game is None:
        return GymEnvironments(env_id, num_envs)
    return AtariEnvironments(
        game, num_envs, threads=threads, sticky=sticky, all_actions=all_actions
    )


def _count_actions(space: gymnasium.Space[Any]) -> int:
    if not isinstance(space, Discrete) or space.start != 0:
        raise ValueError(f"only discrete actions from 0 are supported, not {space}")
    return int(space.n)
