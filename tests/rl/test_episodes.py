# SPDX-License-Identifier: MIT
"""Scores of whole games."""

from __future__ import annotations

import numpy as np

from mooactor.rl import Episode, EpisodeCounter


def test_scores_are_sums_from_one_end_to_the_next() -> None:
    rewards = np.array([[1, 5], [2, 5], [0, 5], [4, 5], [8, 5]], np.float32)
    ended = np.array([[0, 0], [1, 0], [0, 0], [0, 1], [1, 0]], np.bool_)
    counter = EpisodeCounter(2)
    finished = []
    for step_rewards, step_ended in zip(rewards, ended, strict=True):
        counter.add(step_rewards, step_ended)
        finished.append(counter.finished())
    assert finished == [
        [],
        [(0, Episode(3.0, 2))],
        [],  # the autoreset of environment 0: neither a step nor a reward of any game
        [(1, Episode(20.0, 4))],
        [(0, Episode(12.0, 2))],
    ]


def test_the_step_after_an_end_belongs_to_no_game() -> None:
    counter = EpisodeCounter(1)
    for reward, ended in [(1.0, True), (99.0, False), (2.0, True)]:
        counter.add(np.array([reward], np.float32), np.array([ended]))
    assert counter.finished() == [(0, Episode(2.0, 1))]
