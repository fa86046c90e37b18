# SPDX-License-Identifier: MIT
"""`Progress`: the counts of a run so far, its rows of metrics, and their `Pace`."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from impala.runlog import Row
from mooactor.rl import BatcherCounts, Episode, State

RECENT_GAMES = 100  # the return in reports is the mean of so many finished games


@dataclass
class LearnerReport:
    """A learner's report on some updates.

    Attributes:
      version: its updates in all.
      steps: agent steps that all learners have learned from in all.
      learners: the members of its group that have the weights, at this version.
      heals: whether others are without them still; then ``learners`` is an estimate.
      digest: the `fingerprint` of its weights, the same for all learners.
      means: means over these updates, by name.
      taken: the counts of its batcher for them.
    """

    version: int
    steps: int
    learners: int
    heals: bool
    digest: str
    means: dict[str, float]
    taken: BatcherCounts


class Progress:
    """Adds up the learners' reports, and makes rows of metrics of them.

    Counts, recent games and wall time go on where `state` of an earlier program left
    them.

    Args:
      frames_per_step: emulator frames in one agent step.
      summed: means of the learners that have a column with their sum.
      averaged: those that have a column with their mean. A learner that lacks one is
        left out; NaN if all do.
      saved: the result of `state`, to go on from.

    Attributes:
      steps: agent steps that were learned from.
      period_s: seconds between the last two rows.
    """

    def __init__(
        self,
        frames_per_step: int,
        summed: Sequence[str],
        averaged: Sequence[str],
        saved: State | None = None,
    ) -> None:
        self._frames_per_step = frames_per_step
        self._summed = summed
        self._averaged = averaged
        before = saved or {}
        self.steps = int(before.get("steps", 0))
        self._played = int(before.get("played", 0))
        self._games = int(before.get("games", 0))
        self._dropped = int(before.get("dropped", 0))
        self._lost_before = self._lost_calls = int(before.get("lost_calls", 0))
        games = (Episode(*game) for game in before.get("recent", ()))
        self._recent = deque[Episode](games, RECENT_GAMES)
        self._wall_before_s = float(before.get("wall_s", 0.0))
        self._steps_before = self.steps
        self._started_at = self._reported_at = time.monotonic()
        self.period_s = 0.0

    def state(self) -> State:
        """All counts as plain values, for a checkpoint."""
        return {
            "steps": self.steps,
            "played": self._played,
            "games": self._games,
            "dropped": self._dropped,
            "lost_calls": self._lost_calls,
            "recent": [tuple(game) for game in self._recent],
            "wall_s": self._wall_s(),
        }

    def add(self, reports: Sequence[LearnerReport]) -> Row:
        """Add all learners' reports since the last call, one of the newest version
        first; return a row of metrics.

        Raises:
          RuntimeError: their weights differ at the same version.
        """
        digests: dict[int, str] = {}
        for report in reports:
            if digests.setdefault(report.version, report.digest) != report.digest:
                raise RuntimeError(f"learners disagree after update {report.version}")
        now = time.monotonic()
        self.period_s, self._reported_at = now - self._reported_at, now
        steps, self.steps = reports[0].steps - self.steps, reports[0].steps
        taken = [report.taken for report in reports]
        for each in taken:
            self._recent.extend(each.episodes)
            self._games += len(each.episodes)
            self._played += each.played
            self._dropped += each.dropped
        lost = max(each.lost_calls for each in taken)
        self._lost_calls = self._lost_before + lost
        return self._row(reports, steps / self.period_s)

    def __str__(self) -> str:
        """The steps, the time they took, and the rate of this program."""
        rate = self.steps_per_s()
        return (
            f"{self.steps:,} steps ({self.steps * self._frames_per_step:,} frames) in "
            f"{self._wall_s():,.0f} s, {rate:,.0f} steps/s "
            f"({rate * self._frames_per_step:,.0f} frames/s)"
        )

    def steps_per_s(self) -> float:
        """The mean rate since this program began to train."""
        elapsed_s = self._reported_at - self._started_at
        return (self.steps - self._steps_before) / max(elapsed_s, 1e-9)

    def _wall_s(self) -> float:
        """Seconds of training so far, with those before a resume."""
        return self._wall_before_s + time.monotonic() - self._started_at

    def _row(self, reports: Sequence[LearnerReport], steps_per_s: float) -> Row:
        def values(name: str) -> list[float]:
            return [each.means[name] for each in reports if name in each.means]

        return {
            "step": self.steps,
            "played": self._played,
            "frames": self.steps * self._frames_per_step,
            "wall_s": round(self._wall_s(), 3),
            "steps_per_s": round(steps_per_s, 1),
            "frames_per_s": round(steps_per_s * self._frames_per_step, 1),
            "episode_return": _mean([game.score for game in self._recent]),
            "episode_length": _mean([game.steps for game in self._recent]),
            "episodes": self._games,
            **{name: _sum(values(name)) for name in self._summed},
            **{name: _mean(values(name)) for name in self._averaged},
            "policy_lag_max": max(report.taken.lag_max for report in reports),
            "lost_calls": self._lost_calls,
            "dropped": self._dropped,
            "learners": reports[0].learners,
            "weights": reports[0].digest,
        }


def _sum(values: Sequence[float]) -> float:
    return float(np.sum(values)) if values else math.nan


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


class Pace:
    """The number of updates to ask for at a time, for a report every ``period_s``.

    It begins at one, and at most doubles each time. With ``always`` it is constant.
    """

    def __init__(self, period_s: float, *, always: int | None = None) -> None:
        self._period_s = period_s
        self._always = always
        self.updates = 1 if always is None else always

    def adapt(self, elapsed_s: float) -> None:
        """Take into account that the last ``updates`` took ``elapsed_s``."""
        if self._always is None:
            wanted = round(self.updates * self._period_s / elapsed_s)
            self.updates = max(1, min(wanted, 2 * self.updates))
