# SPDX-License-Identifier: MIT
"""Full games after training: played to be judged, and recorded to be watched."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from impala.environment import Camera, EnvironmentSettings
from impala.settings import SettingsError, Within
from mooactor.rl import (
    ActorCritic,
    Environments,
    Player,
    bootstrap_interval,
    evaluate,
)

FRAMES_PER_S = 60


@dataclass(frozen=True)
class EvaluationSettings:
    """The plan for the policy after training."""

    eval: bool = False
    """After training, play full games with sampled actions and fresh seeds, and beside
    them a random policy. With --resume on a finished run nothing else happens."""
    eval_games: Annotated[int, Within(1)] = 30
    """Games to play for --eval, by each of the two policies."""
    record: bool = False
    """After training, record one game to game.gif in the run directory. Games that are
    not of ALE need pygame for it."""


def print_evaluation(
    settings: EnvironmentSettings,
    network: ActorCritic,
    games: int,
    seeds: Sequence[int],
) -> None:
    """Print the mean score of ``network``, and of a random policy beside it, with
    their bootstrap intervals; see `mooactor.rl.evaluate`."""
    for name, policy in (("trained", network), ("random", None)):
        scores = evaluate(settings.make, policy, games, seeds)
        interval = bootstrap_interval(scores)
        said = f"{name} policy: return {interval} over {len(scores)} full games"
        print(said, flush=True)


def record_game(
    settings: EnvironmentSettings, network: ActorCritic | None, seed: int, path: Path
) -> None:
    """Play one game and save it as a GIF, at the speed it is played at."""
    import imageio

    environments = settings.make(1)
    player = Player(network, environments.num_actions, 1, seed)
    pictures: list[Any] = film_game(environments, settings.camera(), player, seed)
    duration_ms = 1000 * settings.frames_per_step / FRAMES_PER_S
    imageio.mimsave(path, pictures, duration=duration_ms, loop=0)


def film_game(
    environments: Environments,
    camera: Camera,
    player: Player,
    seed: int,
    max_frames: int = 3000,
) -> list[NDArray[np.uint8]]:
    """Play one game in ``environments``, a single one, and return its pictures.

    Each is ``[H, W, 3]``. ``camera`` films a twin that gets the same seed and actions.
    """
    observations, first = environments.reset(seed), np.ones(1, np.bool_)
    pictures = [camera.reset(seed)]
    while len(pictures) < max_frames:
        actions = player.choose(observations, first)[0].numpy()
        environments.send(actions)
        pictures.append(camera.step(actions))
        outcome = environments.recv()
        observations, first = outcome.observations, np.zeros(1, np.bool_)
        if outcome.terminated[0] or outcome.truncated[0]:
            break
    return pictures


def check_recording(settings: EnvironmentSettings) -> None:
    """Check, before training, that a game can be drawn after it.

    Raises:
      SettingsError: a package is missing, or the environment cannot be drawn.
    """
    if importlib.util.find_spec("imageio") is None:
        raise SettingsError("--record needs imageio: pip install imageio")
    camera = settings.camera()
    try:
        camera.reset(0)
    except (ModuleNotFoundError, RuntimeError, gymnasium.error.Error) as error:
        raise SettingsError(
            f"--record: {settings.env} cannot be drawn: {error}"
        ) from error
    finally:
        camera.close()
