# SPDX-License-Identifier: MIT
"""The display, in plain text."""

from __future__ import annotations

import math

import pytest

from impala import Display
from impala.display import plain_line, sparkline

ROW = (
    {"step": 1200, "frames": 4800, "steps_per_s": 2000.4, "frames_per_s": 8001.6}
    | {"episode_return": 3.256, "episodes": 12, "loss": 1.0, "entropy": 1.3}
    | {"policy_lag": 2.0, "policy_lag_max": 4, "actor_busy": 0.91, "learner_busy": 0.4}
)


def test_a_line_names_steps_frames_and_the_games_of_the_return() -> None:
    line = plain_line(ROW)
    assert "steps 1,200 (4,800 frames)" in line
    assert "2,000 steps/s 8,002 frames/s" in line
    assert "return 3.26 over 12 games" in line
    assert "lag 2.0 (at most 4)" in line
    assert "actors 91% learners 40%" in line
    assert "3.26 over 100 games" in plain_line(ROW | {"episodes": 5000})


def test_without_a_terminal_the_first_and_the_last_row_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Display("a run", 3000) as display:
        for step in (1000, 2000, 3000):
            display.show(ROW | {"step": step})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["1,000", "3,000"]


def test_in_a_terminal_a_panel_is_drawn(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Display("IMPALA on Breakout", 3000) as display:
        display.show(ROW)
    drawn = capsys.readouterr().out
    assert "IMPALA on Breakout" in drawn and "3.26 over 12 games" in drawn


def test_a_sparkline_spans_the_values_and_keeps_to_its_width() -> None:
    assert sparkline([], 48) == sparkline([math.nan], 48) == ""
    assert sparkline([math.nan, 0.0, 7.0], 48) == "▁█"
    assert sparkline([float(value) for value in range(8)], 48) == "▁▂▃▄▅▆▇█"
    line = sparkline([float(value) for value in range(1000)], 48)
    assert len(line) <= 48 and line[-1] == "█"
