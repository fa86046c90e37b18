# SPDX-License-Identifier: MIT
"""The rows of a run, in its directory."""

from __future__ import annotations

import csv
import math
import os
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from impala import RunLog


def row(step: int, score: float = 1.5) -> dict[str, float | int | str]:
    return {"step": step, "episode_return": score, "weights": "abc"}


def rows(directory: Path) -> list[dict[str, str]]:
    with (directory / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def shown(directory: Path) -> list[tuple[int, float]]:
    """The returns as TensorBoard shows them."""
    events = EventAccumulator(str(directory)).Reload().Scalars("episode_return")
    return [(event.step, event.value) for event in events]


def test_rows_are_on_disk_as_soon_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So they outlive a crash of the host; and TensorBoard shows them, too."""
    synced: list[list[dict[str, str]]] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        fsync(descriptor)
        synced.append(rows(tmp_path))

    monkeypatch.setattr(os, "fsync", record)
    log = RunLog(tmp_path)
    log.write(row(10, math.nan))
    log.write(row(20, 7.0))
    assert synced[-1][-1] == {"step": "20", "episode_return": "7.0", "weights": "abc"}
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
    # TensorBoard reads them by their names, which have the second, and then a number.
    names = [path.name for path in tmp_path.glob("events.*")]
    assert len({name.split(".")[3] for name in names}) == 2
