# SPDX-License-Identifier: MIT
"""The IMPALA example as its users run it: it survives, stops and resumes."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from PIL import Image

import mooactor as moo
from impala import AllLearnersLost, Display, Run
from mooactor.rl import load_checkpoint
from tests.examples.assassin import Assassin
from tests.examples.conftest import flags_of, metrics
from tests.marks import slow, soak
from tests.processes import Process

Rows = list[dict[str, str]]
TINY: dict[str, object] = {"env": "CartPole-v1", "actors": 2, "learners": 2}
FLAGS = tuple(word for name, value in TINY.items() for word in (f"--{name}", value))
TIMES = {
    *("wall_s", "steps_per_s", "frames_per_s", "queue"),
    *("actor_busy", "environment_share", "inference_share"),
    *("learner_busy", "allreduce_share"),
}


@pytest.fixture
def runtime() -> Iterator[None]:
    """A runtime on this machine, for as long as the test takes."""
    with moo.init():
        yield


def without_times(rows: Rows) -> Rows:
    return [
        {name: value for name, value in row.items() if name not in TIMES}
        for row in rows
    ]


def train(
    impala: ModuleType,
    run_dir: Path,
    settings: dict[str, object],
    display: Display,
    interrupted: threading.Event | None = None,
) -> Any:
    """Train in this process; returns the progress."""
    plan = impala.make_plan(
        impala.read_config(flags_of(settings | {"run_dir": run_dir}))
    )
    run = impala.open_run(plan)
    plan = replace(plan, resumes=run.resumes)
    with closing(run):
        return impala.train(plan, run, display, interrupted or threading.Event())[0]


class StopAfter(Display):
    """Interrupts the run when so many reports have been shown."""

    def __init__(self, reports: int, interrupted: threading.Event) -> None:
        super().__init__("stop", 1)
        self.reports = reports
        self.interrupted = interrupted

    def show(self, row: Any) -> None:
        self.reports -= 1
        if self.reports == 0:
            self.interrupted.set()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("env", [slow("CartPole-v1"), soak("ALE/Breakout-v5")])
def test_a_deterministic_run_that_is_resumed_is_as_one_that_was_not_interrupted(
    impala: ModuleType,
    tmp_path: Path,
    env: str,
) -> None:
    """Though it stops in the middle of games, with unrolls in flight and half used."""
    settings = TINY | {"env": env, "unroll": 10, "batch": 4, "envs_per_actor": 6}
    settings |= {"deterministic": True, "total_steps": 2800}

    def train_until(name: str, stop_after: int, resume: bool) -> None:
        stopped = threading.Event()
        display = StopAfter(stop_after, stopped)
        with moo.init():
            resumed = settings | {"resume": resume}
            train(impala, tmp_path / name, resumed, display, stopped)
            assert stopped.is_set() == (stop_after < 1000)

    train_until("whole", 1000, False)
    train_until("parts", 2, False)
    train_until("parts", 1, True)
    train_until("parts", 1000, True)
    whole, parts = (without_times(metrics(tmp_path / n)) for n in ("whole", "parts"))
    assert len(whole) > 4
    assert parts == whole


@pytest.mark.slow
def test_what_a_checkpoint_counts_is_in_the_metrics_when_it_is_saved(
    impala: ModuleType,
    runtime: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So a program that is killed after any of its checkpoints loses no row."""
    saves, save = [], Run.save

    def save_and_look(run: Run, state: Any) -> None:
        save(run, state)
        saves.append((state["steps"], [int(row["step"]) for row in metrics(tmp_path)]))

    monkeypatch.setattr(Run, "save", save_and_look)
    settings = TINY | {"checkpoint_every_s": 0, "total_steps": 1600}
    train(impala, tmp_path, settings, Display("saves", 1600))
    assert len(saves) > 2
    for steps, written in saves:
        assert written[-1] == steps and len(written) == len(set(written))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_killed_learner_is_replaced_and_gets_the_weights_of_the_other(
    impala: ModuleType,
    runtime: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(impala, "REPORT_PERIOD_S", 0.2)
    interrupted = threading.Event()
    assassin = Assassin(2, 2, interrupted)
    settings = TINY | {"total_steps": 10**9}
    progress = train(impala, tmp_path, settings, assassin, interrupted)
    assassin.check(load_checkpoint(tmp_path), progress.steps)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_run_whose_only_learner_is_lost_ends_and_says_how_to_go_on(
    impala: ModuleType, runtime: None, tmp_path: Path
) -> None:
    assassin = Assassin(1, 1, threading.Event())
    settings = TINY | {"learners": 1, "total_steps": 10**9}
    with pytest.raises(AllLearnersLost, match="are lost; --resume goes on from"):
        train(impala, tmp_path, settings, assassin)


@pytest.mark.slow
def test_ctrl_c_saves_and_resume_goes_on(
    start: Callable[..., Any],
    run: Callable[..., str],
    tmp_path: Path,
) -> None:
    settings = (*FLAGS, "--lstm", "--run-dir", tmp_path)
    program = start(*settings, "--total-steps", 50_000_000)
    assert program.stdout is not None
    for line in program.stdout:
        if line.startswith("steps "):
            break
    children = Process.of(program.pid).descendants()
    os.killpg(program.pid, signal.SIGINT)  # as a terminal does: to everybody
    printed = program.stdout.read()
    assert program.wait() == 0, printed
    assert "go on with: --run-dir" in printed
    assert "Traceback" not in printed
    assert not [child for child in children if child.is_running()]

    saved = load_checkpoint(tmp_path)
    assert saved["steps"] == int(metrics(tmp_path)[-1]["step"]) > 0
    wanted = saved["steps"] + 20_000
    printed = run(*settings, "--total-steps", wanted, "--resume", "--eval")
    assert "trained policy: return" in printed
    steps = [int(row["step"]) for row in metrics(tmp_path)]
    assert steps == sorted(set(steps))
    assert steps[-1] >= wanted
    walls = [float(row["wall_s"]) for row in metrics(tmp_path)]
    assert walls == sorted(walls)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_atari_from_the_ceiling_and_pixels_to_evaluation_and_recording(
    run: Callable[..., str], tmp_path: Path
) -> None:
    printed = run(
        *("--total-steps", 4000, "--run-dir", tmp_path, "--envs-per-actor", 4),
        *("--eval", "--eval-games", 4, "--record", "--ceiling"),
    )
    assert re.search(r"ideal [\d,]+ steps/s = \d+ cores / \(\d+ us envir", printed)
    assert re.search(r"\d+% of the ideal", printed)
    row = metrics(tmp_path)[-1]
    assert int(row["frames"]) == 4 * int(row["step"]) >= 16_000
    means = re.findall(r"policy: return ([\d.]+) \(95% .*\) over 4 full games", printed)
    assert len(means) == 2
    with Image.open(tmp_path / "game.gif") as film:
        assert film.size == (160, 210)
        assert film.is_animated  # type: ignore[attr-defined]
    with Image.open(tmp_path / "curve.png") as curve:
        assert curve.format == "PNG"
    assert list(tmp_path.glob("events.out.tfevents.*"))


@pytest.mark.slow
def test_what_a_resumed_run_may_change_is_said_and_what_not_is_refused(
    refused: Callable[..., str],
    run: Callable[..., str],
    tmp_path: Path,
) -> None:
    run_dir = tmp_path / "run"
    settings = (*FLAGS, "--run-dir", run_dir)
    assert "no checkpoint in" in refused(*settings, "--resume")
    run(*settings, "--total-steps", 8000)
    assert "holds a run already" in refused(*settings)
    resume = (*settings, "--resume")
    assert "has made its 8,000 steps" in refused(*resume, "--total-steps", 8000)
    other = refused(*resume, "--total-steps", 9000, "--optimizer", "rmsprop")
    assert "was trained with --optimizer adam, not rmsprop" in other
    other = refused(*resume, "--total-steps", 9000, "--deterministic")
    assert "was trained with --deterministic False, not True" in other

    before = load_checkpoint(run_dir)
    printed = run(*resume, "--total-steps", 12_000, "--batch", 32, "--learners", 1)
    assert "changed: --batch was 8, and is 32" in printed
    after = load_checkpoint(run_dir)
    assert before["steps"] == 8000 and before["learner"]["version"] == 50
    made = -(-4000 // (32 * 20))
    assert after["steps"] == 8000 + made * 32 * 20
    assert after["learner"]["version"] == 50 + made
    rows = metrics(run_dir)
    steps = [int(row["step"]) for row in rows]
    assert steps == sorted(set(steps))
    assert all(float(row["steps_per_s"]) > 0 for row in rows)
    assert all(int(row["played"]) >= int(row["step"]) for row in rows)
