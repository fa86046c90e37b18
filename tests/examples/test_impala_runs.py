# SPDX-License-Identifier: MIT
"""The IMPALA example as its users run it: it learns, survives, stops and resumes."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from PIL import Image

import mooactor as moo
from mooactor.rl import Display, load_checkpoint
from tests.processes import Process

Rows = list[dict[str, str]]
TINY = {"env": "CartPole-v1", "actors": 2, "learners": 2}
FLAGS = tuple(word for name, value in TINY.items() for word in (f"--{name}", value))
TIMES = {"wall_s", "steps_per_s", "frames_per_s", "actor_busy", "learner_busy"}


def without_times(rows: Rows) -> Rows:
    return [
        {name: value for name, value in row.items() if name not in TIMES}
        for row in rows
    ]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_it_learns_cart_pole_with_two_actors_and_two_learners(
    run: Callable[..., str],
    metrics: Callable[[Path], Rows],
    tmp_path: Path,
    seed: int,
) -> None:
    settings = ("--total-steps", 600_000, "--seed", seed, "--run-dir", tmp_path)
    run(*FLAGS, *settings)
    rows = metrics(tmp_path)
    assert max(float(row["episode_return"]) for row in rows) >= 150
    lags = [float(row["policy_lag"]) for row in rows]
    rhos = [float(row["rho"]) for row in rows]
    assert sum(lags) / len(lags) > 0
    assert sum(rhos) / len(rhos) < 1  # V-trace was really at work


def test_learners_agree_to_the_last_bit_after_every_update(
    impala: ModuleType, runtime: None, tmp_path: Path
) -> None:
    config = impala.Config(**TINY)
    learners = impala.start_workers(impala.make_plan(config))
    digests = []
    for _ in range(15):
        reports = moo.get([moo.submit(learner.train, 1) for learner in learners])
        assert reports[0].digest == reports[1].digest
        digests.append(reports[0].digest)
    assert len(set(digests)) == 15


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_same_seed_gives_the_same_curve_in_deterministic_mode(
    impala: ModuleType, metrics: Callable[[Path], Rows], tmp_path: Path
) -> None:
    curves = {}
    for name, seed in (("one", 5), ("again", 5), ("other", 6)):
        config = impala.Config(
            **TINY, deterministic=True, seed=seed, total_steps=10_000
        )
        with moo.init():
            training = impala.Training(impala.make_plan(config), tmp_path / name, None)
            training.run(Display(name, config.total_steps), threading.Event())
        curves[name] = without_times(metrics(tmp_path / name))
    assert len(curves["one"]) > 3
    assert curves["one"] == curves["again"]
    assert curves["one"] != curves["other"]


class Saboteur(Display):
    """Kills one environment actor when the third report is shown."""

    def __init__(self) -> None:
        super().__init__("sabotage", 1)
        self.rows: list[Any] = []
        self.killed: int | None = None

    def show(self, row: Any) -> None:
        self.rows.append(row)
        if len(self.rows) == 3:
            self.killed = actor_pids()[0]
            os.kill(self.killed, signal.SIGKILL)


def actor_pids() -> list[int]:
    rows = [row for host in moo.hosts() for row in host["actors"]]
    return [row["pid"] for row in rows if row["label"].startswith("Actor")]


def test_a_killed_actor_is_replaced_and_training_goes_on(
    impala: ModuleType, runtime: None, tmp_path: Path
) -> None:
    config = impala.Config(**TINY, total_steps=50_000)
    training = impala.Training(impala.make_plan(config), tmp_path, None)
    saboteur = Saboteur()
    training.run(saboteur, threading.Event())
    assert training.done
    assert saboteur.rows[-1]["lost_calls"] > 0
    assert len(actor_pids()) == 2
    assert saboteur.killed not in actor_pids()


@pytest.mark.slow
def test_ctrl_c_saves_and_resume_goes_on(
    start: Callable[..., Any],
    run: Callable[..., str],
    metrics: Callable[[Path], Rows],
    tmp_path: Path,
) -> None:
    settings = (*FLAGS, "--run-dir", tmp_path)
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
    run(*settings, "--total-steps", wanted, "--resume")
    steps = [int(row["step"]) for row in metrics(tmp_path)]
    assert steps == sorted(set(steps))
    assert steps[-1] >= wanted
    walls = [float(row["wall_s"]) for row in metrics(tmp_path)]
    assert walls == sorted(walls)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_atari_from_pixels_to_evaluation_and_recording(
    run: Callable[..., str], metrics: Callable[[Path], Rows], tmp_path: Path
) -> None:
    printed = run(
        *("--total-steps", 4000, "--run-dir", tmp_path, "--envs-per-actor", 4),
        *("--eval", "--eval-games", 4, "--record"),
    )
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
@pytest.mark.timeout(180)
def test_the_ceiling_is_measured_and_compared_with(
    run: Callable[..., str], tmp_path: Path
) -> None:
    settings = ("--ceiling", "--total-steps", 2000, "--envs-per-actor", 4)
    printed = run(*settings, "--run-dir", tmp_path)
    assert re.search(
        r"ideal [\d,]+ steps/s = \d+ cores / \(\d+ us environment", printed
    )
    assert re.search(r"\d+% of the ideal", printed)


@pytest.mark.slow
def test_an_lstm_policy_trains(run: Callable[..., str], tmp_path: Path) -> None:
    printed = run(
        *FLAGS, "--lstm", "--total-steps", 2000, "--run-dir", tmp_path, "--eval"
    )
    assert "trained policy: return" in printed


def test_help_explains_every_flag(run: Callable[..., str], impala: ModuleType) -> None:
    printed = run("--help")
    for name in impala.Config.__dataclass_fields__:
        assert f"--{name.replace('_', '-')}" in printed


@pytest.mark.skipif(find_spec("pygame") is not None, reason="pygame can draw it")
def test_what_cannot_be_drawn_is_not_trained_on(
    start: Callable[..., Any], tmp_path: Path
) -> None:
    program = start(*FLAGS, "--record", "--run-dir", tmp_path / "run")
    printed, _ = program.communicate()
    assert program.returncode == 1
    assert printed.startswith("--record: CartPole-v1 cannot be drawn: pygame is not ")
    assert "pip install" in printed and len(printed.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_no_flag_promises_other_hosts(impala: ModuleType) -> None:
    assert not hasattr(impala.Config(), "connect")
    assert "many" not in (impala.Config.__doc__ or "")
