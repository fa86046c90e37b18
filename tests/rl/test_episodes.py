# SPDX-License-Identifier: MIT
"""Scores of whole games."""

from __future__ import annotations

import numpy as np

from mooactor.rl import Episode, EpisodeCounter


def test_scores_are_sums_from_one_end_to_the_next() -> None:
    """The step after an end, which brings the next game, is of none of them."""
    rewards = np.array([[1, 5], [2, 5], [99, 5], [4, 5], [8, 5]], np.float32)
    ended = np.array([[0, 0], [1, 0], [0, 0], [0, 1], [1, 0]], np.bool_)
    counter, finished = EpisodeCounter(2), []
    for step_rewards, step_ended in zip(rewards, ended, strict=True):
        counter.add(step_rewards, step_ended)
        finished.append(counter.finished())
    assert finished == [
        [],
        [(0, Episode(3.0, 2))],
        [],
        [(1, Episode(20.0, 4))],
        [(0, Episode(12.0, 2))],
    ]
