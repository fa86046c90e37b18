# SPDX-License-Identifier: MIT
"""A process that a test leaves behind is found, and dies with the test run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.process.programs import write
from tests.processes import VARIABLE, Process

ROOT = Path(__file__).parents[1]

# A test that starts processes in all ways, and leaves them: one that is executed, one
# that is merely forked, and one whose parent is gone, in a session of its own.
LEAVES = """
    import os, signal, subprocess, sys, time

    def note(pid):
        with open({pids!r}, "a") as file:
            print(pid, file=file, flush=True)

    def fork():
        if pid := os.fork():
            return pid
        signal.pause()

    def test_that_leaves_processes():
        sleep = ["sleep", "600"]
        note(subprocess.Popen(sleep).pid)
        note(fork())
        shell = subprocess.run(
            ["sh", "-c", "setsid sleep 600 >/dev/null & echo $!"],
            stdout=subprocess.PIPE,
        )
        note(int(shell.stdout))
        {then}

    def test_that_comes_after():
        pass
"""


class Inner:
    """A test run inside the test, of tests that leave processes.

    Args:
      then: what the test does when it has started them.
      options: of pytest.
    """

    def __init__(self, path: Path, then: str, *options: str) -> None:
        self._pids = path / "pids"
        text = LEAVES.format(pids=str(self._pids), then=then)
        file = str(write(path / "test_leaves.py", text))
        words = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-c", os.devnull]
        words += ["--rootdir", str(path)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *words, *options, file],
            cwd=ROOT,
            env={k: v for k, v in os.environ.items() if k != VARIABLE},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def left(self) -> list[Process]:
        """The processes that the test has started, once it has started them all."""
        assert eventually(lambda: len(self._noted()) == 3, 60), self.process.poll()
        return [Process.of(pid) for pid in self._noted()]

    def _noted(self) -> list[int]:
        if not self._pids.exists():
            return []
        return [int(line) for line in self._pids.read_text().split("\n")[:-1]]

    def end(self) -> str:
        """Its output, to the end; its guardian's words among that."""
        printed, _ = self.process.communicate(timeout=120)
        return printed


@pytest.fixture
def inner(tmp_path: Path) -> Iterator[Callable[..., Inner]]:
    made: list[Inner] = []

    def make(then: str, *options: str) -> Inner:
        made.append(Inner(tmp_path, then, *options))
        return made[-1]

    yield make
    for run in made:
        run.process.kill()
        run.process.communicate()


WAITS = "signal.pause()"


def dead(processes: list[Process]) -> bool:
    return eventually(lambda: not any(p.is_running() for p in processes))


@pytest.mark.slow  # it waits for the grace to be over
def test_a_test_that_leaves_processes_fails_and_the_next_one_does_not(
    inner: Callable[..., Inner],
) -> None:
    run = inner("return")
    left = run.left()
    printed = run.end()
    assert "2 passed, 1 error" in printed
    assert "the test left behind: {'process'" in printed and "sleep 600" in printed
    assert dead(left)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_test_started_dies_when_the_run_is_killed(
    inner: Callable[..., Inner], how: signal.Signals
) -> None:
    run = inner(WAITS)
    left = run.left()
    run.process.send_signal(how)
    assert "ending what they left" in run.end()
    assert dead(left)
