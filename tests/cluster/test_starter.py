# SPDX-License-Identifier: MIT
"""The starter, as a launcher has it on another host."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mooactor.cluster.launch import starter
from mooactor.cluster.launch.plan import Plan, Target
from tests.cluster.launched import ROOT

STUBBORN = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
while True:
    signal.pause()
"""
WAITS = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
print("up", flush=True)
signal.sigwait([signal.SIGUSR2])
print("noticed", flush=True)
signal.pause()
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A starter that has been told to run this text."""
    started: list[subprocess.Popen[str]] = []
    environment = {k: v for k, v in os.environ.items() if k != "SSH_CONNECTION"}

    def start(text: str, **more: Any) -> subprocess.Popen[str]:
        here = Target("b", "localhost")
        plan = Plan(["-c", text], [here], "5a" * 32, str(tmp_path))
        plan.variables = {"PYTHONPATH": str(ROOT)}
        order = plan.order([], "127.0.0.1", plan.program)
        order |= {"stdin": None, "foreground": False, "silence_s": 0, **more}
        pipe = subprocess.PIPE
        program = subprocess.Popen(
            [sys.executable, starter.__file__],
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=environment,
            text=True,
        )
        started.append(program)
        assert program.stdin is not None
        program.stdin.write(json.dumps(order) + "\n")
        program.stdin.flush()
        return program

    yield start
    for one in started:
        one.kill()
        one.communicate()


def test_a_program_whose_launcher_is_silent_is_ended(start: Start) -> None:
    program = start("import signal; signal.pause()", silence_s=0.2)
    assert program.wait() == 128 + signal.SIGTERM


def test_a_program_that_does_not_end_is_killed_after_the_grace(start: Start) -> None:
    program = start(STUBBORN)
    assert program.stdout is not None and program.stdout.readline() == "up\n"
    _, err = program.communicate('{"grace_s": 0.1}\n')
    assert (program.returncode, err) == (128 + signal.SIGKILL, "")


def test_signals_are_passed_on_and_words_that_are_none_count_as_the_end(
    start: Start,
) -> None:
    program = start(WAITS)
    assert program.stdin is not None and program.stdout is not None
    assert program.stdout.readline() == "up\n"
    program.stdin.write(json.dumps({"signal": signal.SIGUSR2}) + "\n")
    program.stdin.flush()
    assert program.stdout.readline() == "noticed\n"
    program.stdin.write("no words\n")
    program.stdin.flush()
    assert program.wait() == 128 + signal.SIGTERM


def test_what_is_missing_is_one_sentence(start: Start) -> None:
    for more, why in (
        ({"cwd": "/no/place"}, "the directory /no/place cannot be entered"),
        ({"script": "no.py"}, "there is no script no.py in "),
        ({"address": None}, "does not tell the address of the launching machine"),
    ):
        program = start("", **more)
        out, err = program.communicate()
        assert (program.returncode, out) == (2, "")
        assert err.startswith(starter.FAILED) and why in err
