# SPDX-License-Identifier: MIT
"""Full games after training: played to be judged, and recorded to be watched."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import gymnasium

from mooactor import Restart, actor, get, method, on, stop
from mooactor.rl.environment_settings import EnvironmentSettings
from mooactor.rl.episodes import Episode
from mooactor.rl.networks import ActorCritic
from mooactor.rl.play import Player, film_game, play_games
from mooactor.rl.settings import SettingsError, Within
from mooactor.rl.statistics import bootstrap_interval

FRAMES_PER_S = 60
RETRIES = 3  # of a share of the games; the same seed plays the same games


@dataclass(frozen=True)
class EvaluationSettings:
    """What to do with the policy after training."""

    eval: bool = False
    """After training, play full games with sampled actions and fresh seeds, and beside
    them a random policy. With --resume on a finished run nothing else happens."""
    eval_games: Annotated[int, Within(1)] = 30
    """Games to play for --eval, by each of the two policies."""
    record: bool = False
    """After training, record one game to game.gif in the run directory. Games that are
    not of ALE need pygame for it."""


@actor
class Evaluator:
    """Plays full games in a process of its own."""

    @method
    def play(
        self,
        settings: EnvironmentSettings,
        network: ActorCritic | None,
        games: int,
        seed: int,
    ) -> list[Episode]:
        """Play ``games`` full games side by side; at random without a network."""
        environments = settings.make(games)
        player = Player(network, environments.num_actions, games, seed)
        return play_games(environments, player, seed)


def evaluate(
    settings: EnvironmentSettings,
    network: ActorCritic | None,
    games: int,
    seeds: Sequence[int],
) -> list[float]:
    """The unclipped scores of full games with sampled actions.

    A process for each of ``seeds`` plays its share of ``games``, which are at least as
    many. ``network`` is on the CPU; None plays at random. A process that dies, as with
    its host, is started again, perhaps elsewhere, and plays its share anew.
    """
    shares = [len(range(index, games, len(seeds))) for index in range(len(seeds))]
    again = Restart(max=RETRIES)
    evaluators = [on(Evaluator, restart=again).spawn() for _ in seeds]
    calls = [
        evaluator.play.options(retries=RETRIES).remote(settings, network, share, seed)
        for evaluator, share, seed in zip(evaluators, shares, seeds, strict=True)
    ]
    scores = [game.score for played in get(calls) for game in played]
    for evaluator in evaluators:
        stop(evaluator)
    return scores


def print_evaluation(
    settings: EnvironmentSettings,
    network: ActorCritic,
    games: int,
    seeds: Sequence[int],
) -> None:
    """Print the mean score of ``network``, and of a random policy beside it, with
    their bootstrap intervals; see `evaluate`."""
    for name, policy in (("trained", network), ("random", None)):
        scores = evaluate(settings, policy, games, seeds)
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
