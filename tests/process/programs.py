# SPDX-License-Identifier: MIT
"""Running whole programs that use mooactor, and looking at what they leave."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import IO

from tests.processes import Process


def write(path: Path, text: str) -> Path:
    path.write_text(textwrap.dedent(text))
    return path


def run(
    path: Path, *args: str, timeout: float = 150.0, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and return what it printed."""
    return subprocess.run(
        [sys.executable, str(path), *args],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=path.parent,
        input=stdin,
        env=_environment(),
    )


def start(
    path: Path, *args: str, stderr: int | IO[bytes] = subprocess.PIPE
) -> subprocess.Popen[str]:
    """Start a program whose standard output and input are pipes."""
    return subprocess.Popen(
        [sys.executable, str(path), *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        cwd=path.parent,
        env=_environment(),
    )


def _environment() -> dict[str, str]:
    # Unbuffered, a print is two writes, and a line of an actor may come between.
    return {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}


def family(pid: int) -> list[Process]:
    """A process and all that descend from it."""
    return Process.of(pid).family()


def sessions() -> list[str]:
    """The session directories that exist now."""
    return [x for x in os.listdir(os.environ["TMPDIR"]) if x.startswith("mooactor-")]


def gone(processes: list[Process]) -> bool:
    return not any(process.is_running() for process in processes)
