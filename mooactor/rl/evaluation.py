# SPDX-License-Identifier: MIT
"""Evaluation: full games, played in processes of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mooactor import Restart, actor, get, method, on, stop
from mooactor.rl.env_runner import Player
from mooactor.rl.environments import Environments
from mooactor.rl.networks import ActorCritic
from mooactor.rl.statistics import Episode, EpisodeCounter

RETRIES = 3  # of a share of the games; the same seed plays the same games


def play_games(environments: Environments, player: Player, seed: int) -> list[Episode]:
    """Play one full game in each environment, side by side; returned as they end.

    One each, because the first games to finish would favour short ones.
    """
    count = environments.num_envs
    counter = EpisodeCounter(count)
    finished: dict[int, Episode] = {}
    observations = environments.reset(seed)
    first, ended = np.ones(count, np.bool_), np.zeros(count, np.bool_)
    while len(finished) < count:
        environments.send(player.choose(observations, first)[0].numpy())
        outcome = environments.recv()
        observations = outcome.observations
        first, ended = ended, outcome.terminated | outcome.truncated
        counter.add(outcome.rewards, ended)
        for index, episode in counter.finished():
            finished.setdefault(index, episode)
    return list(finished.values())


@actor
class Evaluator:
    """Plays full games in a process of its own."""

    @method
    def play(
        self,
        make: Callable[[int], Environments],
        network: ActorCritic | None,
        games: int,
        seed: int,
    ) -> list[Episode]:
        """Play ``games`` full games side by side; at random without a network."""
        environments = make(games)
        player = Player(network, environments.num_actions, games, seed)
        return play_games(environments, player, seed)


def evaluate(
    make: Callable[[int], Environments],
    network: ActorCritic | None,
    games: int,
    seeds: Sequence[int],
) -> list[float]:
    """The unclipped scores of full games with sampled actions.

    A process for each of ``seeds`` plays its share of ``games``, which are at least as
    many, in environments that ``make(count)`` makes there, as
    ``partial(make_environments, "CartPole-v1")`` does. ``network`` is on the CPU; None
    plays at random. A process that dies, as with
    its host, is started again, perhaps elsewhere, and plays its share anew.
    """
    shares = [len(range(index, games, len(seeds))) for index in range(len(seeds))]
    again = Restart(max=RETRIES)
    evaluators = [on(Evaluator, restart=again).spawn() for _ in seeds]
    calls = [
        evaluator.play.options(retries=RETRIES).remote(make, network, share, seed)
        for evaluator, share, seed in zip(evaluators, shares, seeds, strict=True)
    ]
    scores = [game.score for played in get(calls) for game in played]
    for evaluator in evaluators:
        stop(evaluator)
    return scores
