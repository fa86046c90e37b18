# SPDX-License-Identifier: MIT
"""The verdict of `make test` on failures, and the tests near a change."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutants.run import mutants
from tests.run import ROOT, near_to

FLAKY = """
from pathlib import Path
def test_passes_from_the_second_time_on():
    seen = Path(__file__).with_suffix(".seen")
    first = not seen.exists()
    seen.touch()
    assert not first, "the first time"
"""
BROKEN = "def test_never_passes():\n    assert 1 == 2\n"
FINE = "def test_passes():\n    assert True\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Within the tree, as pytest names a test by its way from there."""
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as name:
        yield Path(name)


def run(folder: Path, **files: str) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "tests.run", "--workers", "1", str(folder)]
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "TEST_RECORDS": str(folder)},
        capture_output=True,
        text=True,
    )


def test_what_fails_once_and_passes_alone_is_a_line_in_the_ledger(
    folder: Path,
) -> None:
    ledger = folder / "flakes.log"
    name = "test_flaky.py::test_passes_from_the_second_time_on"
    test = f"{folder.relative_to(ROOT)}/{name}"
    ledger.write_text(f"of an earlier run\t\t\t{test}\tso\n")
    done = run(folder, flaky=FLAKY, fine=FINE)
    assert done.returncode == 0, done.stdout
    _, line = ledger.read_text().splitlines()
    assert test in line and "the first time" in line and "load" in line
    assert "==== flakes" in done.stdout and "NOT THE FIRST TIME" in done.stdout


def test_what_fails_alone_too_fails_the_run(folder: Path) -> None:
    done = run(folder, broken=BROKEN, fine=FINE)
    assert done.returncode == 1
    assert (folder / "flakes.log").read_text() == ""


ONCE = '[ -e "$0.seen" ] || { touch "$0.seen"; echo "%s"; exit 1; }'
C_PROGRAMS = {
    "fine": "true",
    "flaky": ONCE % "x.c:1: not so: y",
    "broken": "echo 'x.c:1: not so: y'; exit 1",
    "racy": ONCE % "WARNING: ThreadSanitizer: data race",
    "reported": ONCE % "crashed: signal 11",
    "crashing": "kill -SEGV $$",
}


def run_c(folder: Path, name: str) -> list[int]:
    """The exit status of its run, and of the second look."""
    program = folder / name
    program.write_text(f"#!/bin/sh\n{C_PROGRAMS[name]}\n")
    program.chmod(0o755)
    return [
        subprocess.run(
            [ROOT / "tests/c/run.sh", *words],
            env={**os.environ, "TEST_RECORDS": str(folder)},
            stdout=subprocess.DEVNULL,
        ).returncode
        for words in ([program], ["--again", folder])
    ]


@pytest.mark.parametrize(
    ("name", "statuses", "lines"),
    [
        ("fine", [0, 0], 0),
        ("flaky", [0, 0], 1),
        ("broken", [0, 1], 0),
        ("racy", [1, 0], 0),
        ("reported", [1, 0], 0),
        ("crashing", [1, 0], 0),
    ],
)
def test_a_c_program_is_looked_at_again_unless_it_crashed(
    folder: Path, name: str, statuses: list[int], lines: int
) -> None:
    assert run_c(folder, name) == statuses
    ledger = folder / "flakes.log"
    found = ledger.read_text().splitlines() if ledger.exists() else []
    assert len(found) == lines
    assert all(f"tests/c/{name} " in line and "not so: y" in line for line in found)
    assert (folder / f"{name}.passed").exists() == (statuses == [0, 0])


@pytest.mark.parametrize(
    ("changed", "near", "far"),
    [
        ("mooactor/control/node.py", "tests/host", "tests/tensors"),
        ("mooactor/rl/vtrace.py", "tests/rl", "tests/actors"),
        ("cext/core/arena.c", "tests/c", "tests/typing"),
        ("tests/rl/test_vtrace.py", "tests/rl", "tests/process"),
        ("docs/hosts.md", "tests/docs", "tests/process"),
    ],
)
def test_near_a_change_is_what_uses_it(changed: str, near: str, far: str) -> None:
    found = near_to([changed])
    assert near in found and far not in found


def test_every_mutant_still_fits_the_tree() -> None:
    assert [m.name for m in mutants() if not m.fits()] == []
    names = [m.name for m in mutants()]
    assert len(names) == len(set(names))
