# SPDX-License-Identifier: MIT
"""`Remains`: what an act has left behind: processes, files, sockets, memory."""

from __future__ import annotations

import glob
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from mooactor.process.directories import PREFIX
from tests.clusters import Cluster
from tests.processes import VARIABLE, Process, Run

#: A session must be gone in three seconds. Tests of tests/host hold it to that, at best
#: of several tries. Here is one try, on a machine that the act itself has made busy: it
#: has five times as long, so that only what stays is found.
PATIENCE_S = 15.0


class Remains:
    """Looks for what is there after an act and was not before it.

    Args:
      directory: for temporary files; each host of a cluster has its own.
      cluster: whose programs live on.
    """

    def __init__(self, directory: Path, cluster: Cluster | None) -> None:
        self._run = Run(os.environ[VARIABLE], Process.of(os.getpid()))
        self._directory, self._cluster = directory, cluster
        self._old_files = self._all_files()
        self._before = self._run.processes()
        self._shared = self._shared_memory()
        self._held = self._held_by_programs()

    def after(self) -> list[str]:
        """What is still there when all had time enough to go; each in a sentence."""
        kinds: dict[str, Callable[[], list[str]]] = {
            "process": self._processes,
            "file": self._files,
            "shared memory": lambda: sorted(self._shared_memory() - self._shared),
            "of a host": self._more_held,
            "the end of": self._ended,
        }
        until = time.monotonic() + PATIENCE_S
        found = [f"{kind} {one}" for kind, look in kinds.items() for one in look()]
        while found and time.monotonic() < until:
            time.sleep(0.05)
            found = [f"{kind} {one}" for kind, look in kinds.items() for one in look()]
        return found

    def end(self) -> None:
        """Kill the processes that are left."""
        self._run.end(self._of_act())

    def _of_act(self) -> set[Process]:
        programs = self._programs()
        found = self._run.processes() - self._before
        return {
            process
            for process in found
            if process.pid not in programs and not _is_janitor(process)
        }

    def _programs(self) -> set[int]:
        if self._cluster is None:
            return set()
        programs = [*self._cluster.members.values(), self._cluster.broker]
        return {program.pid for program in programs if program is not None}

    def _processes(self) -> list[str]:
        return [
            f"{process.pid} ({process.command() or 'a zombie'})"
            for process in sorted(self._of_act())
        ]

    def _files(self) -> list[str]:
        return sorted(self._all_files() - self._old_files)

    def _all_files(self) -> set[str]:
        """Sessions have directories of their own."""
        # `Path.rglob` fails where a directory goes meanwhile.
        walk = os.walk(self._directory)
        found = (
            f"{at}/{name}" for at, within, files in walk for name in within + files
        )
        return {path for path in found if path.rpartition("/")[2].startswith(PREFIX)}

    def _shared_memory(self) -> Counter[str]:
        """What lies in /dev/shm, where nothing of ours may, and what programs that live
        on have mapped. Ours has no name (memfd): it goes with the last process that has
        it, and those that are left are found as processes. Its descriptors count among
        the others of a program."""
        mapped = (f"{m} in {pid}" for pid in self._programs() for m in _mapped(pid))
        return Counter([*glob.glob("/dev/shm/*moo*"), *mapped])

    def _held_by_programs(self) -> dict[int, Counter[str]]:
        return {pid: _descriptors(pid) for pid in self._programs()}

    def _more_held(self) -> list[str]:
        """Descriptors that a host or the broker has more than before the act."""
        return [
            f"{pid}: {dict(more)}"
            for pid in self._programs()
            if pid in self._held and (more := _descriptors(pid) - self._held[pid])
        ]

    def _ended(self) -> list[str]:
        """The programs that have ended: all were started again after their kills."""
        if self._cluster is None:
            return []
        programs = [*self._cluster.members.values(), self._cluster.broker]
        return [str(one) for one in programs if one and one.process.poll() is not None]


def _is_janitor(process: Process) -> bool:
    """Whether it is the part of a host that outlives it for a moment, to tidy up."""
    try:
        return Path(f"/proc/{process.pid}/comm").read_text() == "moo-janitor\n"
    except OSError:
        return False  # it is gone


def _descriptors(pid: int) -> Counter[str]:
    """Open files of a process, by kind."""
    kinds: Counter[str] = Counter()
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
            kinds[target.partition(":[")[0]] += 1
    except OSError:
        pass  # it ends just now
    return kinds


def _mapped(pid: int) -> list[str]:
    """The memory without a name that a process has mapped."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:
        return []  # it ends just now
    return [line.split()[5] for line in lines if "/memfd:" in line]
