# SPDX-License-Identifier: MIT
"""Output of commands that nobody reads."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = str(ROOT / "examples/impala_atari.py")
LONG = ("kubernetes", "--hosts", "2", "--image", "x", SCRIPT)
WORDS = [LONG, ("run", "--help")]


def run(
    words: tuple[str, ...], stdout: int, stderr: int = subprocess.PIPE, **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mooactor", *words],
        stdout=stdout,
        stderr=stderr,
        text=True,
        cwd=ROOT,
        env=os.environ | more,
    )


@pytest.fixture
def unread() -> Iterator[int]:
    """A pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def test_output_that_nobody_reads_to_its_end_is_no_failure(unread: int) -> None:
    for unbuffered, words in zip(("", "1"), WORDS, strict=True):
        done = run(words, unread, PYTHONUNBUFFERED=unbuffered)
        assert (done.returncode, done.stderr) == (0, "")
