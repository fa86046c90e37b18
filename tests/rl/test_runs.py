# SPDX-License-Identifier: MIT
"""A run's directory, and what a run that goes on may change."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import mooactor as moo
from mooactor.rl import Run, RunLog, RunSettings, SettingsError, save_checkpoint
from tests.conftest import eventually
from tests.processes import Process

VALUES = {"env": "A-v0", "batch": 8, "eval": False}


def open_run(directory: Path | None, *, resume: bool, **changed: Any) -> Run:
    return Run(
        RunSettings(directory, resume=resume),
        "A-v0",
        VALUES | changed,
        fixed={"env"},
        free={"eval"},
        format_number=2,
    )


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The directory of a run that has made 100 steps."""
    run = open_run(tmp_path, resume=False)
    with RunLog(tmp_path) as log:
        log.write({"step": 100, "episode_return": 1.0})
    run.save({"steps": 100, "weights": torch.ones(3)})
    return tmp_path


def test_a_new_run_has_a_directory_named_by_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = open_run(None, resume=False)
    assert run.directory.parent == Path("runs")
    assert run.directory.name.startswith("A-v0-2")
    assert run.directory.is_dir()
    assert (run.saved, run.resumes, run.changed) == (None, 0, [])
    assert not run.has_made(0)


def test_a_resumed_run_has_what_was_saved(saved: Path) -> None:
    run = open_run(saved, resume=True)
    assert run.saved is not None and torch.equal(run.saved["weights"], torch.ones(3))
    assert run.has_made(100) and not run.has_made(101)
    assert (run.resumes, run.changed) == (1, [])
    run.save({"steps": 200})
    run.close()
    assert open_run(saved, resume=True).resumes == 2


def test_what_has_changed_is_said_unless_it_is_free(saved: Path) -> None:
    run = open_run(saved, resume=True, batch=32, eval=True)
    assert run.changed == ["changed: --batch was 8, and is 32"]


@pytest.mark.parametrize(("period_s", "due"), [(0.0, True), (60.0, False)])
def test_a_save_is_due_when_the_time_has_come(
    tmp_path: Path, period_s: float, due: bool
) -> None:
    run = Run(RunSettings(tmp_path, checkpoint_every_s=period_s), "A-v0", VALUES)
    assert run.save_is_due is due


def refusal(directory: Path | None, *, resume: bool, **changed: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        open_run(directory, resume=resume, **changed)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_runs_that_begin_in_the_same_second_have_directories_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda form: "20261122-120000")
    runs = [open_run(None, resume=False) for _ in range(3)]
    assert [run.directory.name for run in runs] == [
        "A-v0-20261122-120000",
        "A-v0-20261122-120000-2",
        "A-v0-20261122-120000-3",
    ]


@pytest.mark.parametrize("resume", [False, True])
def test_a_directory_in_use_is_refused(
    saved: Path, tmp_path: Path, resume: bool
) -> None:
    """Also one whose run has no row yet."""
    directory = saved if resume else tmp_path / "new"
    run = open_run(directory, resume=resume)
    for other in (False, True):
        assert "is in use by another program" in refusal(directory, resume=other)
    run.close()
    open_run(directory, resume=resume).close()


@moo.actor
class Program:
    """Stands for another program."""

    def __init__(self, directory: Path | None = None) -> None:
        self.run = directory and open_run(directory, resume=True)

    @moo.method
    def pid(self) -> int:
        return os.getpid()


def test_a_program_that_is_killed_leaves_its_directory_to_others(
    spawn: Callable[..., Any], saved: Path
) -> None:
    program = Process.of(spawn(Program, saved).pid())
    assert "is in use by another program" in refusal(saved, resume=True)
    program.kill()

    def is_free() -> bool:
        try:
            open_run(saved, resume=True).close()
        except SettingsError:
            return False
        return True

    assert eventually(is_free)


def test_neither_actors_nor_children_keep_a_directory(
    spawn: Callable[..., Any], saved: Path
) -> None:
    """What outlives a program that is killed."""
    run = open_run(saved, resume=True)
    spawn(Program).pid()
    with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
        run.close()
        open_run(saved, resume=True).close()
        assert child.poll() is None
        child.kill()


def test_a_file_system_without_locks_is_used_without(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    run = open_run(saved, resume=True)
    run.close()
    assert run.resumes == 1


def test_what_cannot_go_on_is_refused_in_a_sentence(saved: Path) -> None:
    assert "--resume needs --run-dir" in refusal(None, resume=True)
    assert "no checkpoint in" in refusal(saved / "other", resume=True)
    assert "holds a run already: go on with it by" in refusal(saved, resume=False)
    other = refusal(saved, resume=True, env="B-v0")
    assert "was trained with --env A-v0, not B-v0; give the same" in other
    save_checkpoint(saved, {"format": 1, "steps": 100})
    assert "is of another version of this program" in refusal(saved, resume=True)
    (saved / "checkpoint.pt").write_bytes(b"PK")
    assert "was cut short or is no checkpoint" in refusal(saved, resume=True)
