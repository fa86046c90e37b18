# SPDX-License-Identifier: MIT
"""Limits of a process or a container are named in one sentence, with their values."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAM = """
import mooactor as moo

class A:
    def one(self): return 1

if __name__ == "__main__":
    with moo.init():
        print(moo.spawn(A).one())
"""
GROUPS = ("/sys/fs/cgroup/pids", "/sys/fs/cgroup")  # of version 1, of version 2


@pytest.fixture
def control_group() -> Iterator[Path]:
    """One that can limit the number of processes and threads."""
    for root in GROUPS:
        made = Path(root) / f"moo-test-{os.getpid()}"
        try:
            made.mkdir()
        except OSError:
            continue
        if (made / "pids.max").exists():
            yield made
            made.rmdir()
            return
        made.rmdir()
    pytest.skip("no control group for pids can be made here")


def run(tmp_path: Path, prelude: str) -> str:
    """The program's last line, where the shell has run `prelude`."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    command = f"{prelude}; exec {sys.executable} {script}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    return (done.stdout + done.stderr).strip().splitlines()[-1]


def test_too_few_threads_are_named(control_group: Path, tmp_path: Path) -> None:
    limit, enter = control_group / "pids.max", f"{control_group}/cgroup.procs"
    for most in (6, 12):  # for the driver, for an actor
        limit.write_text(str(most))
        last = run(tmp_path, f"echo $$ > {enter}")
        assert f"allows {most} processes and threads (pids.max in" in last
    limit.write_text("60")
    assert run(tmp_path, f"echo $$ > {enter}") == "1"


def test_a_limit_on_the_size_of_files_is_named(tmp_path: Path) -> None:
    last = run(tmp_path, "ulimit -f 100")
    assert "the limit on the size of files is 100 KiB (ulimit -f); raise it" in last


def test_a_limit_on_the_address_space_is_named(tmp_path: Path) -> None:
    last = run(tmp_path, "ulimit -v 50000")
    assert "the limit on its address space is 50000 KiB (ulimit -v), " in last
