# SPDX-License-Identifier: MIT
"""The processes of a test run: finding them, and their end.

Invariant: every process that a test starts is gone when the run is over, for every end
of the run.

* A program that a test executes inherits `VARIABLE`, which names the run, under every
  later parent. A process that it merely forks is a descendant of this process, or was
  noted in `forked`. Nobody is taken to be a stranger in the middle of an execve, where
  a process has no environment.
* After each test the leak check names new processes, and `end` kills them.
* At the end of the run, after Ctrl-C and SIGTERM too, `end` kills the rest.
* The guardian (tests/guardian.py) does so if the run was killed.
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

    @classmethod
    def agent_of(cls, driver: int) -> Process:
        """The agent of a driver's own session.

        Raises ProcessLookupError: it has none."""
        until = time.monotonic() + 30
        while time.monotonic() < until:
            for child in _Table.read().children.get(driver, ()):
                if "mooactor.host.agent" in child.command():
                    return child
            time.sleep(0.001)  # within its execve it has no command line
        raise ProcessLookupError(f"process {driver} has no agent")

    def zygote(self) -> Process:
        """That of the only session below it.

        Raises ProcessLookupError: it has none just now."""
        named = [p for p in self.descendants() if p.name() == "moo-zygote"]
        running = [process for process in named if process.is_running()]
        # A process that it has just forked has its name, too, for a moment.
        if eldest := min(running, key=lambda p: (p.started, p.pid), default=None):
            return eldest
        raise ProcessLookupError(f"no zygote below process {self.pid}")

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
        return b" ".join(_words(self, "cmdline")).decode(errors="replace").strip()

    def name(self) -> str:
        """Its name for itself; empty once it is gone."""
        return b"".join(_words(self, "comm")).decode().strip()

    def parent(self) -> int | None:
        """The pid of its parent; None once it is gone."""
        stat = _stat(self.pid)
        return None if stat is None else int(stat[1])

    def descendants(self) -> list[Process]:
        """Its children and theirs, zombies among them."""
        return _Table.read().below(self.pid)

    def family(self) -> list[Process]:
        """It and its descendants."""
        return [self, *self.descendants()]


def stop(pid: int) -> None:
    """SIGSTOP, and wait until every thread of the process has stopped: the signal by
    itself is only a request. SIGCONT lets it go on."""
    os.kill(pid, signal.SIGSTOP)
    until = time.monotonic() + 30
    while any(_is_running(thread) for thread in _threads(pid)):
        if time.monotonic() > until:
            raise TimeoutError(f"process {pid} did not stop")
        time.sleep(0.001)


def _threads(pid: int) -> list[str]:
    return [f"{pid}/task/{thread}" for thread in os.listdir(f"/proc/{pid}/task")]


def _is_running(thread: str) -> bool:
    """Whether a thread has neither stopped nor ended."""
    stat = _stat(thread)
    return stat is not None and stat[0] not in (b"T", b"t", b"Z", b"X")


def _stat(pid: int | str) -> list[bytes] | None:
    """The fields of /proc/PID/stat after the name: state, parent, …"""
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


def of_run(process: Process, run: str) -> bool:
    """Whether its environment names the run."""
    began = time.monotonic()
    while not (words := _words(process, "environ")):
        # Within an execve it has neither an environment nor a command line; just after
        # that it has one that was not there a moment ago.
        patience = 0.25 if _words(process, "cmdline") else 2.0
        if _never_has_one(process) or time.monotonic() > began + patience:
            break
        time.sleep(0.001)
    return f"{VARIABLE}={run}".encode() in words


def _never_has_one(process: Process) -> bool:
    """Whether it is dead, or a thread of the kernel."""
    stat = _stat(process.pid)
    return stat is None or stat[0] == b"Z" or bool(int(stat[6]) & _PF_KTHREAD)


_PF_KTHREAD = 0x00200000


def _words(process: Process, of: str) -> list[bytes]:
    """The strings of /proc/PID/environ or /proc/PID/cmdline; empty if it is gone."""
    try:
        with open(f"/proc/{process.pid}/{of}", "rb", buffering=0) as file:
            text = file.read()
    except OSError:
        return []
    return text.split(b"\0") if text else []


class Run:
    """The processes of one test run.

    Args:
      name: the value of `VARIABLE` in them.
      runner: the process that runs the tests, none of them itself.
    """

    def __init__(self, name: str, runner: Process) -> None:
        self.name, self.runner = name, runner
        self.forked: set[Process] = set()
        self._others: set[Process] = set()
        self.spared = {runner.pid}

    def add(self, forked: set[Process]) -> None:
        """These say that they are of the run, which their environment does not."""
        self.forked |= forked
        self._others -= forked  # if they were seen before they said so

    def lasting(self) -> set[Process]:
        """`processes` without the spare ones of living sessions: the zygote forks one
        soon after an actor."""
        found = self.processes()
        pids = {process.pid for process in found} | self.spared
        return {
            process
            for process in found
            if process.name() != "moo-spare" or process.parent() not in pids
        }

    def processes(self) -> set[Process]:
        """All that live, and zombies that nobody but the runner can reap."""
        table = _Table.read()
        ours = set(table.below(self.runner.pid))
        # Others' stay others', and older processes are not of the run: there is little
        # to read.
        self._others &= table.living
        for process in table.living - ours - self._others:
            if process.started < self.runner.started or not self._is_ours(process):
                self._others.add(process)
            else:
                ours.add(process)
                ours.update(table.living.intersection(table.below(process.pid)))
        return {process for process in ours if process.pid not in self.spared}

    def _is_ours(self, process: Process) -> bool:
        return process in self.forked or of_run(process, self.name)

    def end(self, which: set[Process] | None = None, seconds: float = 10.0) -> None:
        """Kill these, by default all, and processes that they start meanwhile."""
        deadline = time.monotonic() + seconds
        while rest := self.processes() if which is None else which & self.processes():
            for process in rest:
                process.kill()
                with contextlib.suppress(ChildProcessError, ProcessLookupError):
                    os.waitpid(process.pid, os.WNOHANG)
            if time.monotonic() > deadline:
                return
            time.sleep(0.005)
