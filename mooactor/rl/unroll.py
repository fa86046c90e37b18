# SPDX-License-Identifier: MIT
"""T steps of B environments, as one actor hands them to one learner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import torch
from torch import Tensor

from mooactor.rl.episodes import Episode
from mooactor.rl.parameters import Allocate


@dataclass
class Unroll:
    """One unroll, time first: row t+1 of the observations is the outcome of action t.

    Attributes:
      observations: ``[T+1, B, …]``, uint8 images or float32.
      first: ``[T+1, B]`` bool, the observation begins an episode.
      actions: ``[T, B]`` int64.
      log_probs: ``[T, B]`` float32, of those actions under the policy that chose them.
      rewards: ``[T, B]`` float32, as the game gave them.
      terminal: ``[T, B]`` bool, nothing after this step counts for its return.
      valid: ``[T, B]`` bool, False where the action was ignored (an autoreset).
      core: ``[2, B, H]`` recurrent state before row 0.
      version: of the weights that chose the actions.
      episodes: games that ended within, with unclipped scores.
      busy_s, idle_s: what the actor spent on this unroll, and waited before it.
    """

    observations: Tensor
    first: Tensor
    actions: Tensor
    log_probs: Tensor
    rewards: Tensor
    terminal: Tensor
    valid: Tensor
    core: Tensor
    version: int = 0
    episodes: list[Episode] = field(default_factory=list)
    busy_s: float = 0.0
    idle_s: float = 0.0

    @classmethod
    def empty(
        cls,
        steps: int,
        batch: int,
        shape: Sequence[int],
        dtype: torch.dtype,
        core: Tensor,
        allocate: Allocate,
    ) -> Unroll:
        """An unroll to be filled; ``allocate(shape, dtype)`` makes the observations.

        With `moo.empty` as ``allocate`` the unroll crosses to another process without
        a copy. All else is a few kilobytes and is allocated plainly.
        """
        row = (steps, batch)
        return cls(
            observations=allocate((steps + 1, batch, *shape), dtype),
            first=torch.zeros(steps + 1, batch, dtype=torch.bool),
            actions=torch.zeros(row, dtype=torch.int64),
            log_probs=torch.zeros(row),
            rewards=torch.zeros(row),
            terminal=torch.zeros(row, dtype=torch.bool),
            valid=torch.zeros(row, dtype=torch.bool),
            core=core,
        )

    @property
    def steps(self) -> int:
        """T, the actions in each environment."""
        return self.actions.shape[0]

    @property
    def batch(self) -> int:
        """B, the environments side by side."""
        return self.actions.shape[1]

    def columns(self, start: int, stop: int) -> Unroll:
        """Environments ``start`` to ``stop`` as views, without the statistics."""
        narrowed = {
            name: getattr(self, name)[:, start:stop].detach() for name in _TENSORS
        }
        return replace(self, **narrowed, episodes=[], busy_s=0.0, idle_s=0.0)

    def to(self, device: torch.device) -> Unroll:
        """The same unroll with its tensors on ``device``."""
        return replace(
            self, **{name: getattr(self, name).to(device) for name in _TENSORS}
        )


_TENSORS = [entry.name for entry in fields(Unroll) if entry.type == "Tensor"]


def join_unrolls(unrolls: Sequence[Unroll]) -> Unroll:
    """Put unrolls of equal length side by side; the version is the oldest of theirs."""
    if len(unrolls) == 1:
        return unrolls[0]
    joined = {
        name: torch.cat([getattr(unroll, name) for unroll in unrolls], dim=1)
        for name in _TENSORS
    }
    episodes = [episode for unroll in unrolls for episode in unroll.episodes]
    return replace(
        unrolls[0],
        **joined,
        version=min(unroll.version for unroll in unrolls),
        episodes=episodes,
        busy_s=sum(unroll.busy_s for unroll in unrolls),
        idle_s=sum(unroll.idle_s for unroll in unrolls),
    )
