# SPDX-License-Identifier: MIT
"""The flagship example as a module, and as a program."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import mooactor as moo
from tests.computing import fonts as fonts
from tests.computing import one_thread as one_thread
from tests.marks import folder_needs

pytest_pycollect_makemodule = folder_needs(
    *("torch", "gymnasium", "ale_py", "rich", "tensorboard", "matplotlib"),
    *("imageio", "PIL", "tyro"),
)

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "impala_atari.py"
Program = subprocess.Popen[str]


def flags_of(settings: dict[str, object]) -> list[str]:
    """The command line that gives these settings: ``lag=2`` is ``--lag 2``."""
    words: list[str] = []
    for name, value in settings.items():
        dashed = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{dashed}" if value else f"--no-{dashed}")
        else:
            words += [f"--{dashed}", str(value)]
    return words


@pytest.fixture(scope="session")
def impala() -> ModuleType:
    """The example, imported."""
    return importlib.import_module("impala_atari")


@pytest.fixture
def start() -> Iterator[Callable[..., Program]]:
    """Start the example with these arguments, in a process group of its own."""
    programs: list[Program] = []

    def start(*arguments: object, nice: int = 0) -> Program:
        niceness = ("nice", "-n", str(nice))
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        program = subprocess.Popen(
            [*niceness, sys.executable, str(EXAMPLE), *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        programs.append(program)
        return program

    yield start
    for program in programs:
        program.kill()
        program.wait()
        assert program.stdout is not None
        program.stdout.close()


@pytest.fixture
def run(start: Callable[..., Program]) -> Callable[..., str]:
    """Run the example to its end, and return what it printed."""

    def run(*arguments: object, nice: int = 0, code: int = 0) -> str:
        program = start(*arguments, nice=nice)
        printed, _ = program.communicate()
        assert program.returncode == code, printed
        return printed

    return run


@pytest.fixture
def refused(run: Callable[..., str]) -> Callable[..., str]:
    """Run the example, which ends at once, and return the line that says why."""

    def refused(*arguments: object) -> str:
        (line,) = run(*arguments, code=1).splitlines()
        return line

    return refused


def pids(kind: str, host: str | None = None) -> list[int]:
    """The pids of the example's running actors of a class, here or on any host."""
    rows = {row["name"]: row["actors"] for row in moo.hosts()}
    chosen = rows.values() if host is None else [rows.get(host, ())]
    running = [one for each in chosen for one in each if one["state"] == "running"]
    return [one["pid"] for one in running if one["label"].startswith(kind)]


def metrics(run_dir: Path) -> list[dict[str, str]]:
    """The rows of a run directory's metrics.csv."""
    from impala.runlog import METRICS, read_metrics  # which needs torch

    return read_metrics(run_dir / METRICS)
