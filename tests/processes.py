# SPDX-License-Identifier: MIT
"""The processes of a test run: which there are, and their end.

Invariant: whatever a test starts is gone when the run is over, however it is over.

* What a test executes inherits `VARIABLE`, which names the run, whoever its parent is
  later on. What it merely forks is a descendant of this process, or was noted in
  `forked`. These three together are `of_this_run`.
* After each test the leak check names what is new there, and `end` kills it.
* At the end of the run, after Ctrl-C and SIGTERM too, `end` kills what is left.
* The guardian (tests/guardian.py) does so where the run was killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import NamedTuple

VARIABLE = "MOOACTOR_TEST_RUN"


class Process(NamedTuple):
    """A process; another one that gets the same pid is not equal to it."""

    pid: int
    started: int  # in clock ticks since boot

    @classmethod
    def of(cls, pid: int) -> Process:
        """Raises ProcessLookupError: there is none."""
        if (stat := _stat(pid)) is None:
            raise ProcessLookupError(pid)
        return cls(pid, int(stat[19]))

    def is_running(self) -> bool:
        """Whether it lives: a zombie does not."""
        stat = _stat(self.pid)
        return stat is not None and stat[0] != b"Z" and int(stat[19]) == self.started

    def kill(self) -> None:
        if self.is_running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def used_s(self) -> float:
        """Processor time so far; 0 once it is gone."""
        stat = _stat(self.pid)
        ticks = int(stat[11]) + int(stat[12]) if stat else 0
        return ticks / os.sysconf("SC_CLK_TCK")

    def command(self) -> str:
        """Its command line; empty of a zombie."""
        try:
            with open(f"/proc/{self.pid}/cmdline") as file:
                return file.read().replace("\0", " ").strip()
        except OSError:
            return ""

    def descendants(self) -> list[Process]:
        """Its children and theirs, zombies among them."""
        return _Table.read().below(self.pid)

    def family(self) -> list[Process]:
        """It and its descendants."""
        return [self, *self.descendants()]


def _stat(pid: int | str) -> list[bytes] | None:
    """What /proc/PID/stat says after the name: state, parent, …"""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None


class _Table(NamedTuple):
    """All processes of the machine, at one moment."""

    children: dict[int, list[Process]]  # by the parent's pid
    living: set[Process]

    @classmethod
    def read(cls) -> _Table:
        table = cls({}, set())
        for name in os.listdir("/proc"):
            if name.isdecimal() and (stat := _stat(name)) is not None:
                process = Process(int(name), int(stat[19]))
                table.children.setdefault(int(stat[1]), []).append(process)
                if stat[0] != b"Z":
                    table.living.add(process)
        return table

    def below(self, pid: int) -> list[Process]:
        """The descendants, zombies among them."""
        found = list(self.children.get(pid, ()))
        for process in found:  # which grows meanwhile
            found += self.children.get(process.pid, ())
        return found


def _bears(process: Process, run: str) -> bool:
    """Whether its environment names the run."""
    try:
        with open(f"/proc/{process.pid}/environ", "rb", buffering=0) as file:
            return f"{VARIABLE}={run}".encode() in file.read().split(b"\0")
    except OSError:
        return False


class Run:
    """The processes of one test run.

    Args:
      name: what `VARIABLE` is in them.
      runner: the process that runs the tests, none of them itself.
    """

    def __init__(self, name: str, runner: Process) -> None:
        self.name, self.runner = name, runner
        self.forked: set[Process] = set()
        self._others: set[Process] = set()
        self.spared = {runner.pid}

    def processes(self) -> set[Process]:
        """All that live, and zombies that nobody but the runner can reap."""
        table = _Table.read()
        ours = set(table.below(self.runner.pid))
        # Others' remain so, and what is older than the run is none of it: there is
        # little to be read.
        self._others &= table.living
        for process in table.living - ours - self._others:
            if process.started < self.runner.started or not self._is_ours(process):
                self._others.add(process)
            else:
                ours.add(process)
                ours.update(table.living.intersection(table.below(process.pid)))
        return {process for process in ours if process.pid not in self.spared}

    def _is_ours(self, process: Process) -> bool:
        return process in self.forked or _bears(process, self.name)

    def end(self, which: set[Process] | None = None, seconds: float = 10.0) -> None:
        """Kill these, by default all, and what they start meanwhile."""
        deadline = time.monotonic() + seconds
        while rest := self.processes() if which is None else which & self.processes():
            for process in rest:
                process.kill()
                with contextlib.suppress(ChildProcessError, ProcessLookupError):
                    os.waitpid(process.pid, os.WNOHANG)
            if time.monotonic() > deadline:
                return
            time.sleep(0.005)
