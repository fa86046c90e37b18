# SPDX-License-Identifier: MIT
"""The command itself: what it answers, and with which exit code."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

import mooactor
from mooactor.cli import main
from mooactor.cli.command import _add_commands


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


WRONG = {
    "bench": ("--fast", "unrecognized arguments: --fast"),
    "doctor": ("x", "unrecognized arguments: x"),
    "status": ("--nosuch", "unrecognized arguments: --nosuch"),
    "top": ("--interval=0", "argument --interval: 0 is not between 0.1 and 3600"),
    "logs": ("-f", "the following arguments are required: NAME"),
    "stop": ("--connect", "argument --connect: expected one argument"),
}


@pytest.mark.parametrize("option", ["--json", "--js"])
@pytest.mark.parametrize("command", WRONG)
def test_with_json_a_wrong_command_line_is_an_object_too(
    command: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    word, why = WRONG[command]
    for words in ([command, word, option], [command, option, word]):
        with pytest.raises(SystemExit) as stopped:
            main(words)
        assert stopped.value.code == 2
        out, err = capsys.readouterr()
        assert json.loads(out) == {"error": why}
        assert err.startswith("usage: mooactor") and err.endswith(f"error: {why}\n")


def test_no_command_with_json_is_left_out_here() -> None:
    parser = argparse.ArgumentParser()
    commands = _add_commands(parser).choices.items()
    assert {name for name, one in commands if "--json" in one.format_help()} == {*WRONG}


@pytest.mark.parametrize(
    "words",
    [
        ["status", "--nosuch"],
        ["dance", "--json"],
        ["run", "--nosuch", "train.py", "--json"],
    ],
)
def test_otherwise_it_is_not(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert capsys.readouterr().out == ""


def test_the_object_is_written_also_where_stderr_is_lost() -> None:
    command = [sys.executable, "-m", "mooactor", "status", "--json", "x"]
    root = Path(__file__).parents[2]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=full, text=True, cwd=root
        )
    assert done.returncode == 2
    assert json.loads(done.stdout) == {"error": "unrecognized arguments: x"}


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
