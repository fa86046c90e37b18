# SPDX-License-Identifier: MIT
"""One environment of a batch: its failures have one type, and it can be replaced."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

MOST_FAILURES = 3  # of one environment, with at most one step between them


class EnvironmentFailed(RuntimeError):
    """An environment raised, or gave an unusable observation or reward.

    The message names the environment's id, its index within the batch, and the original
    type and text; below them stands the environment's own traceback, because
    ``__cause__`` does not reach another process. The batch must be reset before it can
    be stepped again.

    Attributes:
      env_id: the id of the environment.
      index: its place within the batch, from 0.
    """

    def __init__(self, message: str, env_id: str = "", index: int = 0) -> None:
        super().__init__(message)
        self.env_id = env_id
        self.index = index


class Unusable(ValueError):
    """An environment gave something that does not fit its spaces, or is not finite."""


@dataclass
class Record:
    """The failures of a batch: the number of replacements, and the last reason.

    ``failed`` are the environments whose present step cannot be used.
    """

    restarted: int = 0
    last_error: str = ""
    failed: list[int] = field(default_factory=list)


class Guard(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wraps one environment; all its exceptions become `EnvironmentFailed`.

    With ``restart`` an environment that fails is closed and a new one is made at the
    next reset, with a seed that follows from the last one and the number of restarts.
    The step that failed is truncated, with reward 0. `MOST_FAILURES` in a row, with at
    most one step between them, are tried; the next raises.
    """

    def __init__(
        self,
        make: Callable[[], gymnasium.Env[Any, Any]],
        env_id: str,
        index: int,
        restart: bool,
        record: Record,
    ) -> None:
        self._make = make
        self._env_id = env_id
        self._index = index
        self._restart = restart
        self._record = record
        try:
            environment = make()
        except (gymnasium.error.Error, ImportError):
            raise  # these name what is missing
        except Exception as error:
            raise self._failure("construction", error) from error
        super().__init__(environment)
        self._shape = environment.observation_space.shape
        self._dtype = np.dtype(environment.observation_space.dtype)
        self._seed = 0
        self._restarts = 0
        self._failures = 0
        self._steps = 0  # since the last failure
        self._broken = False  # a new environment must be made
        self._over = False  # the next step only begins the next episode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin an episode, in a new environment if the last one failed."""
        if seed is not None:
            self._seed, self._failures = seed, 0
        while True:
            doing = "construction"
            try:
                if self._broken:
                    self.env = self._make()
                    self._broken = False
                    seed = self._own_seed() if seed is None else seed
                doing = "reset"
                observation, info = self.env.reset(seed=seed, options=options)
                first = self._fitting(observation)
                _check_finite(first)
            except Exception as error:
                self.fail(doing, error)
                seed = None
            else:
                self._over = False
                return first, info

    def step(
        self, action: Any
    ) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Step the environment; if it fails, it gives zeros and is noted as failed."""
        if self._over:
            observation, info = self.reset()
            return observation, 0.0, False, False, info
        try:
            seen, reward, terminated, truncated, info = self.env.step(action)
            observation, gained = self._fitting(seen), float(reward)
        except Exception as error:
            self.fail("step", error)
            self._record.failed.append(self._index)
            return self._nothing(), 0.0, False, True, {}
        self._steps += 1
        return observation, gained, bool(terminated), bool(truncated), info

    def close(self) -> None:
        """Close the environment, if its failure has not done so."""
        if not self._broken:
            super().close()

    def fail(self, doing: str, error: Exception) -> None:
        """Take ``error`` as a failure: raise it, or let the next reset make a new one.

        Raises:
          EnvironmentFailed: without ``restart``, or after too many failures.
        """
        self._failures = self._failures + 1 if self._steps <= 1 else 1
        self._steps = 0
        failure = self._failure(doing, error)
        if not self._restart:
            raise failure from error
        if not self._broken:
            with suppress(Exception):
                self.env.close()
        self._broken = self._over = True
        if self._failures > MOST_FAILURES:
            raise failure from error
        self._restarts += 1
        self._record.restarted += 1
        self._record.last_error = str(failure)

    def _nothing(self) -> NDArray[Any]:
        assert self._shape is not None  # of a box, see GymEnvironments
        return np.zeros(self._shape, self._dtype)

    def _own_seed(self) -> int:
        state = np.random.SeedSequence((self._seed, self._restarts))
        return int(state.generate_state(1)[0])

    def _fitting(self, observation: Any) -> NDArray[Any]:
        """``observation`` as an array, if it has the shape and kind of the space."""
        array = np.asarray(observation)
        fits = array.dtype == self._dtype or np.can_cast(
            array.dtype, self._dtype, "same_kind"
        )
        if array.shape != self._shape or not fits:
            raise Unusable(
                f"its observation is {array.dtype} of shape {array.shape}, but its "
                f"space is {self._dtype} of shape {self._shape}: correct one of the two"
            )
        return array

    def _failure(self, doing: str, error: Exception) -> EnvironmentFailed:
        who = f"{self._env_id}, environment {self._index} of its batch,"
        if isinstance(error, Unusable):
            text = f"{who} failed in {doing}: {error}"
        else:
            trace = "".join(traceback.format_exception(error)).rstrip()
            text = (
                f"{who} failed in {doing}: {type(error).__name__}: {error}\n\n"
                f"The environment's traceback:\n{trace}"
            )
        return EnvironmentFailed(text, self._env_id, self._index)


def unusable(what: str, values: NDArray[Any]) -> Unusable:
    """Why ``values``, an environment's observation or reward, are unusable."""
    odd = values[~np.isfinite(values)].flat[0]
    return Unusable(f"its {what} is not finite but {odd}: correct the environment")


def _check_finite(observation: NDArray[Any]) -> None:
    if observation.dtype == np.uint8:
        return
    with np.errstate(over="ignore"):
        converted = np.asarray(observation, np.float32)
    if not np.isfinite(converted).all():
        raise unusable("observation", converted)
