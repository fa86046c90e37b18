# SPDX-License-Identifier: MIT
"""A run's directory."""

from __future__ import annotations

import csv
import math
import os
from pathlib import Path

import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from mooactor.rl import RunLog


def row(step: int, score: float = 1.5) -> dict[str, float | int | str]:
    return {"step": step, "episode_return": score, "weights": "abc"}


def rows(directory: Path) -> list[dict[str, str]]:
    with (directory / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def shown(directory: Path) -> list[tuple[int, float]]:
    """What TensorBoard shows of the returns."""
    events = EventAccumulator(str(directory)).Reload().Scalars("episode_return")
    return [(event.step, event.value) for event in events]


def test_rows_are_on_disk_as_soon_as_written(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    log.write(row(10))
    assert rows(tmp_path) == [{"step": "10", "episode_return": "1.5", "weights": "abc"}]
    log.close()


def test_rows_outlive_a_crash_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[list[str]] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        fsync(descriptor)
        synced.append([entry["step"] for entry in rows(tmp_path)])

    monkeypatch.setattr(os, "fsync", record)
    log = RunLog(tmp_path)
    for step in (10, 20):
        log.write(row(step))
        assert synced[-1][-1] == str(step)
    log.close()


def test_tensorboard_gets_the_numbers(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    log.write(row(10, math.nan))
    log.write(row(20, 7.0))
    assert shown(tmp_path) == [(20, 7.0)]  # though it is not closed yet
    log.close()


def test_a_resumed_log_drops_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    for step in (10, 20, 30):
        log.write(row(step))
    log.close()
    log = RunLog(tmp_path, from_step=20)
    log.write(row(25, 9.0))
    log.close()
    assert [entry["step"] for entry in rows(tmp_path)] == ["10", "20", "25"]
    assert shown(tmp_path) == [(10, 1.5), (20, 1.5), (25, 9.0)]


def test_tensorboard_reads_a_resumed_log_after_the_one_that_it_continues(
    tmp_path: Path,
) -> None:
    for number in range(3):  # all at once; the names have the second, and then a number
        log = RunLog(tmp_path, from_step=number)
        log.write(row(number + 1, float(number)))
        log.close()
    names = [path.name for path in sorted(tmp_path.glob("events.*"))]
    assert len({name.split(".")[3] for name in names}) == 3
    assert shown(tmp_path) == [(1, 0.0), (2, 1.0), (3, 2.0)]


def test_a_log_of_another_run_is_not_overwritten(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    log.write(row(10))
    log.close()
    with pytest.raises(FileExistsError, match="resume it, or choose another"):
        RunLog(tmp_path)
    assert len(rows(tmp_path)) == 1


def test_the_curve_is_a_picture_even_before_the_first_game(tmp_path: Path) -> None:
    log = RunLog(tmp_path, "a title")
    log.write(row(10, math.nan))
    log.draw()
    empty = Image.open(tmp_path / "curve.png").convert("RGB").tobytes()
    for step in range(20, 200, 10):
        log.write(row(step, step / 10))
    log.draw()
    log.close()
    assert Image.open(tmp_path / "curve.png").convert("RGB").tobytes() != empty


def test_the_end_draws_the_curve_unless_something_was_raised(tmp_path: Path) -> None:
    with pytest.raises(KeyError), RunLog(tmp_path / "broken") as log:
        log.write(row(10))
        raise KeyError("in the middle of a run")
    with RunLog(tmp_path / "whole") as log:
        log.write(row(10))
    drawn = [path.parent.name for path in tmp_path.glob("*/curve.png")]
    assert drawn == ["whole"]
