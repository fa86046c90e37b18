# SPDX-License-Identifier: MIT
"""Output of commands that nobody reads, or that cannot be written."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mooactor.cli import main
from mooactor.cli.doctor import report

ROOT = Path(__file__).parents[2]
SCRIPT = str(ROOT / "examples/impala_atari.py")
LONG = ("kubernetes", "--hosts", "2", "--image", "x", SCRIPT)
WORDS = [LONG, ("bench", "--only", "list"), ("run", "--help")]


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


@pytest.fixture
def full() -> Iterator[int]:
    fd = os.open("/dev/full", os.O_WRONLY)
    yield fd
    os.close(fd)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", WORDS)
def test_output_that_nobody_reads_to_its_end_is_no_failure(
    words: tuple[str, ...], unbuffered: str, unread: int
) -> None:
    done = run(words, unread, PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", WORDS)
def test_output_that_cannot_be_written_is_one_sentence(
    words: tuple[str, ...], unbuffered: str, full: int
) -> None:
    done = run(words, full, PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "cannot be written (No space left on device)" in line


def test_a_failure_keeps_its_exit_code_whoever_reads(unread: int, full: int) -> None:
    for fd in (unread, full):
        for words in (("status", "--json", "--connect", "?"), ("dance",)):
            assert run(words, fd, fd).returncode == 2


def test_another_error_is_told_though_the_output_is_lost_as_well(full: int) -> None:
    program = (
        "from mooactor.cli import main; from mooactor.cli.doctor import report\n"
        "report.run = lambda **_: print('begun') or open('/nowhere')\n"
        "main(['doctor'])"
    )
    words = [sys.executable, "-c", program]
    done = subprocess.run(
        words,
        stdout=full,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONUNBUFFERED": ""},
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("FileNotFoundError: ")


@pytest.mark.parametrize("error", [BrokenPipeError(), FileNotFoundError()])
def test_another_error_of_the_system_is_not_taken_for_one_of_the_output(
    error: OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(**_: object) -> int:
        raise error

    monkeypatch.setattr(report, "run", check)
    before = sys.stdout, sys.stderr
    with pytest.raises(type(error)) as raised:
        main(["doctor"])
    assert raised.value is error
    assert (sys.stdout, sys.stderr) == before
