# SPDX-License-Identifier: MIT
"""The two backends of a batch: ale-py's vectoriser, and Gymnasium's.

`make_environments` gives any ALE game ale-py's C++ vectoriser, whose threads emulate
between `send` and `recv`, and any other Gymnasium id the synchronous vectoriser. Both
look the same from here: next-step autoreset, images with channels first, unclipped
rewards, discrete actions.
"""

from __future__ import annotations

import importlib
import importlib.util
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

from mooactor.rl.environments import Environments, StepResult
from mooactor.rl.guard import Guard, Record, unusable


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
        super().__init__(vector, game)
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
    """Any Gymnasium environment with a box or image observation, stepped in `recv`.

    Boxes of uint8 with two or three dimensions are images; other boxes of at most two
    dimensions are flattened to float32 vectors.

    An environment that raises, or gives an observation or a reward that is NaN or
    infinite, makes `reset` or `recv` raise `EnvironmentFailed`. With ``restart`` it is
    closed and its episode ends as truncated, with reward 0 and the observation of the
    step before; the next episode is that of a new environment, with a seed of its own.
    ``restarted`` counts the replacements and ``last_error`` describes the last. After
    four failures with at most one step between, it is not replaced again:
    `EnvironmentFailed`.

    Raises:
      gymnasium.error.Error: no such environment is registered, or it lacks something.
      ImportError: a module that the environment is of cannot be imported.
      ValueError: its observations or actions are not supported.
      EnvironmentFailed: its constructor raised anything else.
    """

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        *,
        restart: bool = False,
        vector_kwargs: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        find_spec(env_id)  # imports its module
        make = partial(gymnasium.make, env_id.rpartition(":")[2], **options)
        record = Record()
        self._guards: list[Guard] = []
        try:
            for index in range(num_envs):
                self._guards.append(Guard(make, env_id, index, restart, record))
            space = _supported(self._guards[0].observation_space, env_id)
            guards = [partial(_same, guard) for guard in self._guards]
            # Uncopied, because `_convert` makes new arrays in any case.
            vector = SyncVectorEnv(guards, **{"copy": False, **(vector_kwargs or {})})
            super().__init__(vector, env_id)
        except BaseException:
            for guard in self._guards:
                guard.close()
            raise
        self._record = record
        self._space = space
        self._images = _is_image(space)
        self._actions: NDArray[np.int64] | None = None
        self._last: NDArray[Any] | None = None  # the newest observations

    @property
    def observation_shape(self) -> tuple[int, ...]:
        if not self._images:
            return (int(np.prod(self._space.shape)),)
        return self._channels_first(np.empty((1, *self._space.shape))).shape[1:]

    def _send(self, actions: NDArray[np.int64]) -> None:
        self._actions = actions

    def reset(self, seed: int) -> NDArray[Any]:
        self._last = super().reset(seed)
        return self._last

    def _recv(self) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._record.failed.clear()
        return self.vector.step(self._actions)

    def _checked(self, outcome: StepResult) -> StepResult:
        """Note a NaN or an infinity as a failure, and fill the rows that failed."""
        failed = self._record.failed
        for what, values in (
            ("observation", outcome.observations),
            ("reward", outcome.rewards),
        ):
            if values.dtype == np.uint8 or np.isfinite(values).all():
                continue
            finite = np.isfinite(values).reshape(self.num_envs, -1).all(axis=1)
            for index in sorted({*np.flatnonzero(~finite).tolist()} - {*failed}):
                self._guards[index].fail("step", unusable(what, values[index]))
                failed.append(index)
        if failed:
            assert self._last is not None  # a step follows a reset
            outcome.observations[failed] = self._last[failed]
            outcome.rewards[failed] = 0.0
            outcome.terminated[failed] = False
            outcome.truncated[failed] = True
        self._last = outcome.observations
        return outcome

    def _convert(self, observations: NDArray[Any]) -> NDArray[Any]:
        if self._images:
            return self._channels_first(observations).copy()
        return observations.reshape(self.num_envs, -1).astype(np.float32)

    def _channels_first(self, images: NDArray[Any]) -> NDArray[Any]:
        """``[B, H, W]`` gains a channel; ``[B, H, W, C]`` moves it; C is the least."""
        if images.ndim == 3:
            return images[:, None]
        last_is_least = images.shape[-1] < min(images.shape[1:-1])
        return np.moveaxis(images, -1, 1) if last_is_least else images


def make_environments(
    env_id: str,
    num_envs: int,
    *,
    threads: int = 1,
    sticky: float = 0.0,
    all_actions: bool = False,
    restart: bool = False,
) -> Environments:
    """Make ``num_envs`` environments of any ALE or Gymnasium id.

    ``env_id`` is ``Name-v0`` or ``module:Name-v0``; the module is imported first.
    ``threads``, ``sticky`` (the chance that ALE repeats the last action) and
    ``all_actions`` (all 18 instead of the game's own) matter to ALE games only.
    ``restart`` replaces an environment that fails, see `GymEnvironments`; games of ALE
    run in C++ and cannot fail singly, so it has no effect on them.

    Raises:
      gymnasium.error.Error: no such environment is registered, or it lacks something.
      ImportError: a module that the environment is of cannot be imported.
      ValueError: ``num_envs`` is below 1, or observations or actions are not supported.
      EnvironmentFailed: the constructor of an environment raised anything else.
    """
    if num_envs < 1:
        raise ValueError(f"num_envs must be at least 1, not {num_envs}")
    game = atari_game(env_id)
    if game is None:
        return GymEnvironments(env_id, num_envs, restart=restart)
    return AtariEnvironments(
        game, num_envs, threads=threads, sticky=sticky, all_actions=all_actions
    )


def _same(guard: Guard) -> Guard:
    return guard


def _is_image(space: Box) -> bool:
    return space.dtype == np.uint8 and len(space.shape) in (2, 3)


def _supported(space: gymnasium.Space[Any], env_id: str) -> Box:
    if not isinstance(space, Box):
        raise ValueError(
            f"only Box spaces are supported, but {env_id} observes {space}: "
            "gymnasium.wrappers.FlattenObservation turns most others into one"
        )
    if len(space.shape) > 2 and not _is_image(space):
        raise ValueError(
            f"{env_id} observes {space.dtype} of shape {space.shape}, but images must "
            "be uint8 of three dimensions: let it give those, or flatten it with "
            "gymnasium.wrappers.FlattenObservation"
        )
    return space


# -- ids: ``Name-v0``, or ``module:Name-v0`` as Gymnasium has it --


def find_spec(env_id: str) -> EnvSpec:
    """The specification of ``env_id``; a module named in it is imported first.

    Raises:
      gymnasium.error.Error: no such environment is registered.
      ModuleNotFoundError: there is no such module, or ale-py is needed and missing.
      ImportError: the module is there, and importing it failed.
    """
    module, _, name = env_id.rpartition(":")
    if module:
        _import_module(module, env_id)
    if importlib.util.find_spec("ale_py") is not None:
        import ale_py

        gymnasium.register_envs(ale_py)
    elif name.startswith("ALE/"):
        raise ModuleNotFoundError(f"{env_id} needs ale-py: pip install mooactor[atari]")
    try:
        return gymnasium.spec(name)
    except gymnasium.error.Error as error:
        advice = f"check that {module} registers it"
        if not module:
            advice = f"if a module of yours registers it, name both: MODULE:{name}"
        text = f"no environment {name!r} is registered ({error}); {advice}"
        raise type(error)(text) from error


def atari_game(env_id: str) -> str | None:
    """The ROM's name (``"breakout"``) behind an ALE id, or None for any other id.

    ``env_id`` may name a module, ``module:Name-v0``, which is then imported first.

    Raises:
      gymnasium.error.Error: no such environment is registered.
      ModuleNotFoundError: the id names a missing module, or it is one of ALE and ale-py
        is not installed.
      ImportError: the module is there, and importing it failed.
    """
    spec = find_spec(env_id)
    entry = spec.entry_point
    is_atari = isinstance(entry, str) and entry.startswith("ale_py")
    return str(spec.kwargs["game"]) if is_atari else None


def _import_module(module: str, env_id: str) -> None:
    try:
        importlib.import_module(module)
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name
        if missing and f"{module}.".startswith(f"{missing}."):
            raise ModuleNotFoundError(
                f"{env_id} names the module {module!r}, which Python does not find: "
                "install it, or put its directory into PYTHONPATH"
            ) from error
        raise ImportError(
            f"{env_id} names the module {module!r}, and to import it fails: "
            f"{type(error).__name__}: {error}"
        ) from error
