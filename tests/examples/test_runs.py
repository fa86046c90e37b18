# SPDX-License-Identifier: MIT
"""A run's directory."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import mooactor as moo
from impala import Run, RunLog, RunSettings, SettingsError

pytestmark = pytest.mark.usefixtures("session")
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
    """One of its own, also if it begins in the same second as another."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda form: "20261122-120000")
    runs = [open_run(None, resume=False) for _ in range(3)]
    assert [run.directory for run in runs] == [
        Path("runs/A-v0-20261122-120000"),
        Path("runs/A-v0-20261122-120000-2"),
        Path("runs/A-v0-20261122-120000-3"),
    ]
    assert runs[2].directory.is_dir()
    assert (runs[0].saved, runs[0].resumes, runs[0].changed) == (None, 0, [])
    assert not runs[0].has_made(0)


def test_a_resumed_run_has_what_was_saved(saved: Path) -> None:
    run = open_run(saved, resume=True)
    assert run.saved is not None and torch.equal(run.saved["weights"], torch.ones(3))
    assert run.has_made(100) and not run.has_made(101)
    assert (run.resumes, run.changed) == (1, [])
    run.save({"steps": 200})
    run.close()
    assert open_run(saved, resume=True).resumes == 2


def refusal(directory: Path | None, *, resume: bool, **changed: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        open_run(directory, resume=resume, **changed)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_a_directory_in_use_is_refused(saved: Path, tmp_path: Path) -> None:
    """Also one whose run has no row yet."""
    for directory, resume in ((saved, True), (tmp_path / "new", False)):
        run = open_run(directory, resume=resume)
        for other in (False, True):
            assert "is in use by another program" in refusal(directory, resume=other)
        run.close()
        open_run(directory, resume=resume).close()


@moo.actor
class Program:
    """A process that begins while a run is open here."""

    def ready(self) -> None: ...


def test_neither_actors_nor_children_keep_a_directory(
    spawn: Callable[..., Any], saved: Path
) -> None:
    """The state that outlives a program that is killed."""
    run = open_run(saved, resume=True)
    spawn(Program).ready()
    with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
        run.close()
        open_run(saved, resume=True).close()
        assert child.poll() is None
        child.kill()
