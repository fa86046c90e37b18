# SPDX-License-Identifier: MIT
"""Choosing actions, and playing whole games to be judged or watched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from mooactor.rl.camera import Camera
from mooactor.rl.environments import Environments
from mooactor.rl.episodes import Episode, EpisodeCounter
from mooactor.rl.networks import ActorCritic


class Player:
    """Samples actions for B environments, and remembers the recurrent state."""

    def __init__(
        self, network: ActorCritic | None, num_actions: int, num_envs: int, seed: int
    ) -> None:
        """Without a network all actions are equally likely."""
        self.network = network
        self.num_actions = num_actions
        self.core = torch.zeros(2, num_envs, 0)
        if network is not None:
            self.core = network.initial_core(num_envs)
        self.generator = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def choose(
        self, observations: NDArray[Any], first: NDArray[np.bool_]
    ) -> tuple[Tensor, Tensor]:
        """Actions ``[B]`` and their log-probabilities ``[B]``."""
        log_probs = F.log_softmax(self._logits(observations, first), dim=-1)
        actions = torch.multinomial(log_probs.exp(), 1, generator=self.generator)
        return actions[:, 0], log_probs.gather(1, actions)[:, 0]

    def state(self) -> dict[str, Tensor]:
        """A copy of the state from which `load` chooses the same actions.

        ``generator`` is the state of the random numbers, uint8, and ``core``
        ``[2, B, H]`` the recurrent state. The network's weights are not part of it.
        """
        return {"generator": self.generator.get_state(), "core": self.core.clone()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from ``state``, the result of `state` of a player of the same kind.

        Raises:
          ValueError: it is of a player with another network or another batch;
            nothing was changed.
        """
        core = state["core"]
        if core.shape != self.core.shape:
            raise ValueError(
                f"the state has a core of shape {list(core.shape)}, but this player's "
                f"is {list(self.core.shape)}: load it with the network and the number "
                "of environments that it was saved with"
            )
        self.generator.set_state(state["generator"])
        self.core = core.to(self.core, copy=True)

    def _logits(self, observations: NDArray[Any], first: NDArray[np.bool_]) -> Tensor:
        if self.network is None:
            return torch.zeros(len(observations), self.num_actions)
        rows, starts = torch.from_numpy(observations), torch.from_numpy(first)
        output = self.network(rows[None], starts[None], self.core)
        self.core = output.core
        logits: Tensor = output.logits[0]
        return logits


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
