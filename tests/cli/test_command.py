# SPDX-License-Identifier: MIT
"""The command itself: what it answers, and with which exit code."""

import subprocess
import sys
from pathlib import Path

import pytest

import mooactor
from mooactor.cli import main


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"mooactor {mooactor.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["dance"], ["bench", "--fast"]])
def test_a_wrong_command_line_exits_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "usage: mooactor" in capsys.readouterr().err


def test_the_module_is_the_command() -> None:
    command = [sys.executable, "-m", "mooactor", "--help"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root)
    assert done.returncode == 0
    assert "doctor" in done.stdout
    assert "bench" in done.stdout


def test_attach_to_nobody_says_how_to_find_who_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["attach", str(tmp_path / "debug-1")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("mooactor attach: cannot attach")
    assert "cannot attach at" in error and "`mooactor attach` alone" in error
