# SPDX-License-Identifier: MIT
"""The C tests, as one test each: `make -C tests/c check` by another name."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.marks import slow

HERE = Path(__file__).parent
PROGRAMS = sorted(
    p.stem for kind in ("test_*.c", "fuzz_*.c", "model_*.c") for p in HERE.glob(kind)
)
#: The gate runs these by make, as they are and under a sanitizer.
LONG = (
    "test_arena",
    "test_collective_death",
    "test_collective_faults",
    "test_collective_hosts",
    "test_device",
    "test_fabric",
    "test_remote",
    "test_tcp",
    "test_tcp_cuts",
    "test_tcp_deaths",
)

needs_compiler = pytest.mark.skipif(
    shutil.which("make") is None or shutil.which("gcc") is None,
    reason="make and gcc are needed to build the C tests",
)


def make(*arguments: str) -> None:
    done = subprocess.run(
        ["make", "-s", f"-j{os.cpu_count()}", "-C", str(HERE), *arguments],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@needs_compiler
@pytest.mark.timeout(400)  # the first one compiles all of cext/
@pytest.mark.parametrize(
    "program", [slow(name) if name in LONG else name for name in PROGRAMS]
)
def test_program(program: str) -> None:
    make("check", f"TESTS={program}")


@needs_compiler
@pytest.mark.soak  # CI calls make for these
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_under_sanitizer(sanitizer: str) -> None:
    make("check", f"SANITIZER={sanitizer}")


@needs_compiler
@pytest.mark.slow
@pytest.mark.timeout(600)  # it compiles all of cext/ with clang, too
@pytest.mark.skipif(shutil.which("clang") is None, reason="libFuzzer needs clang")
def test_fuzzing_the_parsers() -> None:
    make("fuzz", "SECONDS=5")
