# SPDX-License-Identifier: MIT
"""Rows of metrics from the reports of all learners, and counts that go on."""

from __future__ import annotations

import math

import pytest

from impala import LearnerReport, Progress
from mooactor.rl import BatcherCounts, Episode

SUMMED, AVERAGED = ("loss",), ("entropy", "queue", "never")


def report(
    version: int, steps: int, digest: str = "abc", **taken: int
) -> LearnerReport:
    means = {"loss": 2.0, "entropy": float(version)}
    counts = BatcherCounts(episodes=[Episode(3.0, 10), Episode(5.0, 20)], **taken)
    return LearnerReport(version, steps, 2, False, digest, means, counts)


def test_a_row_is_made_of_what_all_learners_report() -> None:
    progress = Progress(4, SUMMED, AVERAGED)
    first, second = report(1, 160, played=90, lag_max=3), report(1, 160, played=80)
    second.means |= {"entropy": 2.0, "queue": 7.0}
    second.taken.dropped, second.taken.lost_calls = 5, 2
    row = progress.add([first, second])
    assert list(row) == [
        *("step", "played", "frames", "wall_s", "steps_per_s", "frames_per_s"),
        *("episode_return", "episode_length", "episodes", *SUMMED, *AVERAGED),
        *("policy_lag_max", "lost_calls", "dropped", "learners", "weights"),
    ]
    assert (row["step"], row["frames"], row["played"]) == (160, 640, 170)
    assert (row["loss"], row["entropy"], row["queue"]) == (4.0, 1.5, 7.0)
    assert math.isnan(float(row["never"]))
    assert (row["episode_return"], row["episode_length"]) == (4.0, 15.0)
    assert (row["episodes"], row["policy_lag_max"]) == (4, 3)
    assert (row["lost_calls"], row["dropped"], row["weights"]) == (2, 5, "abc")
    assert progress.steps_per_s() == pytest.approx(160 / progress.period_s)


def test_the_return_is_that_of_the_last_hundred_games() -> None:
    progress = Progress(1, SUMMED, AVERAGED)
    early = report(1, 10)
    early.taken.episodes = [Episode(-1000.0, 1)] * 60
    progress.add([early])
    late = report(2, 20)
    late.taken.episodes = [Episode(7.0, 1)] * 100
    row = progress.add([late])
    assert (row["episode_return"], row["episodes"]) == (7.0, 160)


def test_counts_go_on_where_they_were_saved() -> None:
    whole, first = (Progress(4, SUMMED, AVERAGED) for _ in range(2))
    reports = [report(1, 160, played=90, lost_calls=2), report(2, 320, played=70)]
    reports[1].taken.lost_calls = 3
    expected = [whole.add([each]) for each in reports][-1]
    first.add(reports[:1])
    saved = first.state() | {"wall_s": 100.0}
    second = Progress(4, SUMMED, AVERAGED, saved)
    assert second.steps == 160
    reports[1].taken.lost_calls = 1  # a new supply counts from 0
    row = second.add(reports[1:])
    counts = ("step", "played", "episodes", "episode_return", "lost_calls", "dropped")
    assert [row[name] for name in counts] == [expected[name] for name in counts]
    assert (row["played"], row["lost_calls"]) == (160, 3)
    assert 100.0 <= float(row["wall_s"]) < 200.0
    assert str(second).startswith("320 steps (1,280 frames) in 100 s, ")


def test_one_that_came_late_counts_with_what_it_took() -> None:
    progress = Progress(1, SUMMED, AVERAGED)
    row = progress.add([report(2, 20, "new", played=5), report(1, 10, "old", played=3)])
    assert (row["step"], row["played"], row["weights"]) == (20, 8, "new")


def test_learners_that_differ_end_the_run() -> None:
    progress = Progress(1, SUMMED, AVERAGED)
    with pytest.raises(RuntimeError, match="learners disagree after update 7"):
        progress.add([report(7, 10), report(7, 10, digest="xyz")])
