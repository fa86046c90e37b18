# SPDX-License-Identifier: MIT
"""Whole-game returns, counted step by step over a batch of environments."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Episode(NamedTuple):
    """One finished game: the sum of its unclipped rewards, and its agent steps."""

    score: float
    steps: int


class EpisodeCounter:
    """Sums rewards for each environment and returns the games that end.

    Feed it unclipped rewards: clipped ones do not add up to the score. Under next-step
    autoreset the step after an end belongs to no game, and the counter leaves it out.
    """

    def __init__(self, num_envs: int) -> None:
        self._scores = np.zeros(num_envs, np.float64)
        self._steps = np.zeros(num_envs, np.int64)
        self._ended = np.zeros(num_envs, np.bool_)

    def add(self, rewards: NDArray[np.float32], ended: NDArray[np.bool_]) -> None:
        """Count one step of all environments, in order of time.

        ``rewards`` and ``ended`` are ``[num_envs]``.
        """
        playing = ~self._ended
        self._scores[self._ended] = 0.0
        self._steps[self._ended] = 0
        self._scores += np.where(playing, rewards, 0.0)
        self._steps += playing
        self._ended = ended.copy()

    def finished(self) -> list[tuple[int, Episode]]:
        """The games that the last `add` ended, as (environment, episode)."""
        return [
            (int(index), Episode(float(self._scores[index]), int(self._steps[index])))
            for index in np.flatnonzero(self._ended)
        ]
