# SPDX-License-Identifier: MIT
"""A batch of environments: one call starts a step, another waits for its result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from mooactor.rl.guard import Record


class StepResult(NamedTuple):
    """One step of a batch of B environments.

    ``observations`` ``[B, …]`` (uint8 images with channels first, or float32) are new
    arrays, never overwritten. ``rewards`` ``[B]`` float32 are unclipped. ``lost_life``
    ``[B]`` is set where a life was lost but the game did not end. After ``terminated``
    or ``truncated`` ``[B]`` the next step ignores its action, and brings the first
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

    After any exception of `reset` or `recv` the batch is as a new one: `reset` starts
    all environments anew, and `send` raises `RuntimeError` until then.
    """

    def __init__(self, vector: VectorEnv[Any, Any, Any], env_id: str) -> None:
        mode = vector.metadata.get("autoreset_mode")
        if mode != AutoresetMode.NEXT_STEP:
            raise ValueError(f"autoreset mode must be NEXT_STEP, but it is {mode}")
        self.vector = vector
        self.num_envs: int = vector.num_envs
        self.num_actions = _count_actions(vector.single_action_space, env_id)
        self._record = Record()
        self._sent = False
        self._ready = False

    @property
    def restarted(self) -> int:
        """How often an environment failed and was replaced."""
        return self._record.restarted

    @property
    def last_error(self) -> str:
        """The message and traceback of the last environment replaced, or ``""``."""
        return self._record.last_error

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
        """Start all environments anew, seeded ``seed … seed + B - 1``.

        Raises:
          EnvironmentFailed: an environment raised, or gave a NaN or an infinity.
        """
        self._sent = self._ready = False
        observations, infos = self.vector.reset(seed=seed)
        self._note_lives(infos)
        converted = self._convert(observations)
        self._ready = True
        return converted

    def send(self, actions: NDArray[np.int64]) -> None:
        """Start one step with ``actions`` ``[B]``; returns at once where it can.

        Raises:
          ValueError: ``actions`` is not ``[B]``, or there is no such action (ale-py
            would wait forever for an unknown one); nothing was sent.
        """
        if self._sent:
            raise RuntimeError("send called twice in a row: recv the outcome first")
        if not self._ready:
            raise RuntimeError(
                "reset the environments before this send: they are new, or one failed"
            )
        if actions.shape != (self.num_envs,):
            raise ValueError(
                f"{self.num_envs} environments need as many actions, not an array of "
                f"shape {list(actions.shape)}"
            )
        if not ((actions >= 0) & (actions < self.num_actions)).all():
            raise ValueError(
                f"actions are 0 to {self.num_actions - 1} here, not {actions.tolist()}"
            )
        self._send(actions)
        self._sent = True

    def recv(self) -> StepResult:
        """Wait for the step that `send` started.

        Raises:
          EnvironmentFailed: an environment raised, or gave a NaN or an infinity.
        """
        if not self._sent:
            raise RuntimeError("recv called with nothing sent: send actions first")
        self._sent = self._ready = False
        observations, rewards, terminated, truncated, infos = self._recv()
        with np.errstate(over="ignore"):  # infinite values are refused below
            outcome = StepResult(
                self._convert(observations),
                np.asarray(rewards, np.float32),
                np.asarray(terminated, np.bool_),
                np.asarray(truncated, np.bool_),
                self._note_lives(infos),
            )
        usable = self._checked(outcome)
        self._ready = True
        return usable

    def close(self) -> None:
        """Free the environments. Closing twice does nothing."""
        self.vector.close()

    @abstractmethod
    def _send(self, actions: NDArray[np.int64]) -> None: ...

    @abstractmethod
    def _recv(self) -> tuple[Any, Any, Any, Any, dict[str, Any]]: ...

    @abstractmethod
    def _convert(self, observations: NDArray[Any]) -> NDArray[Any]: ...

    def _checked(self, outcome: StepResult) -> StepResult:
        """Refuse unusable observations and rewards, or replace them."""
        return outcome

    def _note_lives(self, infos: dict[str, Any]) -> NDArray[np.bool_]:
        """The environments that lost a life since the last call; none if not known."""
        return np.zeros(self.num_envs, np.bool_)


def _count_actions(space: gymnasium.Space[Any], env_id: str) -> int:
    if not isinstance(space, Discrete) or space.start != 0:
        raise ValueError(
            f"only discrete actions from 0 are supported, but {env_id} takes {space}: "
            "map them with gymnasium.wrappers.TransformAction"
        )
    return int(space.n)
