# SPDX-License-Identifier: MIT
"""Limits of a process or a container are named in one sentence, with their values."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mooactor.errors import Cause
from tests.process import programs

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


@pytest.mark.parametrize(
    ("most", "said"),
    [
        (6, "mooactor.errors.MooError: this process cannot take part"),
        (12, "mooactor.errors.ActorDied: A is dead: MooError: this process cannot"),
        (60, "1"),
    ],
)
def test_too_few_threads_are_named(
    most: int, said: str, control_group: Path, tmp_path: Path
) -> None:
    (control_group / "pids.max").write_text(str(most))
    last = run(tmp_path, f"echo $$ > {control_group}/cgroup.procs")
    assert last.startswith(said)
    if most < 60:
        assert f"allows {most} processes and threads (pids.max in" in last
        assert "it needs 8 more: raise that limit" in last


def test_a_limit_on_the_size_of_files_is_named(tmp_path: Path) -> None:
    last = run(tmp_path, "ulimit -f 100")
    assert "the limit on the size of files is 100 KiB (ulimit -f); raise it" in last


def test_a_limit_on_processor_time_is_named() -> None:
    assert "processor time that its limit allows (ulimit -t)" in str(
        Cause("signal", signal=24)
    )


@pytest.mark.parametrize("kib", [50_000, 60_000])
def test_a_limit_on_the_address_space_is_named(kib: int, tmp_path: Path) -> None:
    last = run(tmp_path, f"ulimit -v {kib}")
    assert last.startswith("mooactor.errors.MooError: this process cannot take part")
    assert f"the limit on its address space is {kib} KiB (ulimit -v), " in last
    assert "KiB are in use, and its threads need" in last
    assert last.endswith(" KiB more: raise that limit")


def test_a_limit_on_the_address_space_that_is_high_enough_is_none(
    tmp_path: Path,
) -> None:
    assert run(tmp_path, "ulimit -v 1000000") == "1"


def test_an_array_that_the_limit_on_the_address_space_forbids_names_it(
    tmp_path: Path,
) -> None:
    pytest.importorskip("numpy")
    program = """
        import numpy, resource
        import mooactor as moo

        class A:
            def zeros(self):
                array = numpy.zeros(1 << 28, numpy.uint8)
                with open("/proc/self/statm") as file:
                    used = int(file.read().split()[0]) * resource.getpagesize()
                limit = used + (1 << 27)
                resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
                return array

        if __name__ == "__main__":
            with moo.init():
                moo.spawn(A).zeros()
    """
    done = programs.run(programs.write(tmp_path / "program.py", program))
    assert "OutOfMemory: no room for 268 MB of shared memory: of this process, the" in (
        done.stderr
    )
    assert " KiB (ulimit -v). Raise that limit, or unset it" in done.stderr
