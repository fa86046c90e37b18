# SPDX-License-Identifier: MIT
"""The command itself: what it answers, and with which exit code."""

from pathlib import Path

import pytest

import mooactor as moo
from mooactor.cli import main


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"mooactor {moo.__version__}\n"


def wrong(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """The output for a command line that cannot be understood."""
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    out, err = capsys.readouterr()
    return out, err


def test_a_wrong_command_line_is_told_with_its_usage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words, why in (
        (["doctor", "x"], "unrecognized arguments: x"),
        (["top", "--interval=0"], "'0' is no number of seconds from 0.1, and at most"),
        (["logs", "-f", "--json"], "the following arguments are required: NAME"),
        (["stop", "--connect"], "argument --connect: expected one argument"),
        (["dance"], "invalid choice: 'dance'"),
    ):
        out, err = wrong(words, capsys)
        assert out == "" and err.startswith("usage: mooactor") and why in err


# -- values --------------------------------------------------------------------

EMPTY = [
    ("host", "--join", "127.0.0.1", "--name", ""),
    ("broker", "--listen", ""),
    ("status", "--connect", ""),
    ("keygen", ""),
    ("run", "--cwd", "", "x.py"),
    ("run", "--patience", "0", "x.py"),
    ("run", "--grace", "inf", "x.py"),
    ("slurm", "--nodes", "1", "--job-name", "", "x.py"),
]


def test_a_value_that_is_none_is_not_taken_for_the_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in EMPTY:
        _, said = wrong(list(words), capsys)
        empty = "its value is empty: write one" in said
        assert empty or "is no number of seconds" in said, words
    for command in (["run"], ["host", "--join", "127.0.0.1"]):
        for number in ("9" * 400, "9" * 5000, "-1"):
            program = ["x.py"][: command == ["run"]]
            _, said = wrong([*command, f"--num-cpus={number}", *program], capsys)
            assert "is no whole number from 0, and at most" in said
    assert "--ports" in wrong(["broker", "--ports", "9-1"], capsys)[1]


def test_nobody_is_not_taken_for_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.py").write_text("print('it runs')")
    monkeypatch.chdir(tmp_path)
    for hosts in (("--hosts", ""), ("--hosts", ","), ("--hostfile", "")):
        assert main(["run", *hosts, "x.py"]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("mooactor run: no host is named; write --hosts a,b")
