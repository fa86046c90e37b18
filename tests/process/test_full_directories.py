# SPDX-License-Identifier: MIT
"""The session's directory is on a file system without room."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAM = """
import mooactor as moo

class Actor:
    def one(self) -> int:
        return 1

print(moo.spawn(Actor).one())
"""


@pytest.fixture
def full() -> Iterator[Path]:
    """A directory of its own file system, which is full. Its path is short: those of
    sockets must be."""
    with tempfile.TemporaryDirectory(dir="/tmp") as where:
        yield from filled(Path(where))


def filled(where: Path) -> Iterator[Path]:
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "moo-full", str(where)]
    if os.geteuid() or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting takes root")
    try:
        with open(where / "filler", "wb", buffering=0) as filler:
            filler.write(bytes(1 << 16))
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)


def test_the_error_names_the_directory_and_what_to_do(full: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "TMPDIR": str(full)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert f"No space left on device in {full}/" in last
    assert "make room there, or set TMPDIR to a directory that has some" in last
