# SPDX-License-Identifier: MIT
"""`EnvRunner`: steps environments with a policy, and writes what happens into unrolls.

An actor with two of them steps one while it infers for the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from mooactor.rl.checkpoints import State
from mooactor.rl.environments import Environments, StepResult
from mooactor.rl.networks import ActorCritic
from mooactor.rl.statistics import EpisodeCounter
from mooactor.rl.unroll import Unroll
from mooactor.rl.weights import Allocate


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


class EnvRunner:
    """Environments and their player, which fill columns of unrolls row by row.

    For each row t: `observe` writes the observations, `send` chooses the actions and
    lets the emulators run, `receive` waits and writes the results. Between `send` and
    `receive` the actor does the same for its other runner. The time of each goes to the
    unroll's ``inference_s`` and ``environment_s``.

    Args:
      columns: its columns of an unroll.
      seed: of the first games; the player has a seed of its own.
      life_loss_ends: whether a lost life ends the return, though the game goes on.
      keep_actions: remember all actions, for `state`.
    """

    def __init__(
        self,
        environments: Environments,
        player: Player,
        columns: slice,
        seed: int,
        *,
        life_loss_ends: bool = True,
        keep_actions: bool = False,
    ) -> None:
        self.environments = environments
        self.player = player
        self.columns = columns
        self._life_loss_ends = life_loss_ends
        self._actions: list[NDArray[np.int64]] | None = [] if keep_actions else None
        self._begin(seed)

    def _begin(self, seed: int) -> None:
        size = self.environments.num_envs
        self._seed = seed
        self.observations = self.environments.reset(seed)
        self.first = np.ones(size, np.bool_)
        self._ended = np.zeros(size, np.bool_)
        self._games = EpisodeCounter(size)

    def observe(self, unroll: Unroll, row: int) -> None:
        """Write the observations of ``row``."""
        unroll.observations.numpy()[row, self.columns] = self.observations
        unroll.first.numpy()[row, self.columns] = self.first

    def send(self, unroll: Unroll, row: int) -> None:
        """Choose the actions of ``row`` and let the emulators run."""
        began = perf_counter()
        actions, log_probs = self.player.choose(self.observations, self.first)
        chosen = perf_counter()
        self._send(actions.numpy())
        unroll.inference_s += chosen - began
        unroll.environment_s += perf_counter() - chosen
        unroll.actions[row, self.columns] = actions
        unroll.log_probs[row, self.columns] = log_probs
        unroll.valid.numpy()[row, self.columns] = ~self._ended

    def receive(self, unroll: Unroll, row: int) -> None:
        """Wait for the emulators and write the results of the actions of ``row``."""
        began = perf_counter()
        outcome = self._receive()
        unroll.environment_s += perf_counter() - began
        terminal = outcome.terminated | (outcome.lost_life & self._life_loss_ends)
        unroll.rewards.numpy()[row, self.columns] = outcome.rewards
        unroll.terminal.numpy()[row, self.columns] = terminal
        unroll.episodes += [game for _, game in self._games.finished()]

    def _send(self, actions: NDArray[np.int64]) -> None:
        self.environments.send(actions)
        if self._actions is not None:
            self._actions.append(actions.copy())

    def _receive(self) -> StepResult:
        outcome = self.environments.recv()
        self.observations = outcome.observations
        self.first = self._ended  # under next-step autoreset a game begins only now
        self._ended = outcome.terminated | outcome.truncated
        self._games.add(outcome.rewards, self._ended)
        return outcome

    def state(self) -> State:
        """The state for `load`, tensors and plain values: the seed, and every action.

        Emulators in C++ cannot be saved, but the same seed and actions repeat the same
        games. Only with ``keep_actions``, and between two rows.
        """
        if self._actions is None:
            raise RuntimeError("an EnvRunner has a state only with keep_actions=True")
        size = self.environments.num_envs
        actions = np.reshape(np.asarray(self._actions, np.int64), (-1, size))
        return {
            "seed": self._seed,
            "actions": torch.from_numpy(actions),
            "player": self.player.state(),
        }

    def load(self, state: State) -> None:
        """Play the games up to ``state`` again; takes the emulators' time for them."""
        self._actions = []
        self._begin(state["seed"])
        for actions in state["actions"].numpy():
            self._send(actions)
            self._receive()
        self.player.load(state["player"])


def empty_unroll(
    runners: Sequence[EnvRunner], steps: int, allocate: Allocate
) -> Unroll:
    """An unroll of T ``steps`` for all environments of ``runners``, to be filled.

    It begins with the recurrent states that their players have now. See `Unroll.empty`.
    """
    sample = torch.from_numpy(runners[0].observations)
    return Unroll.empty(
        steps,
        sum(runner.environments.num_envs for runner in runners),
        sample.shape[1:],
        sample.dtype,
        torch.cat([runner.player.core for runner in runners], dim=1),
        allocate,
    )
