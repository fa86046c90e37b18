# SPDX-License-Identifier: MIT
"""`Remains`: what an act has left behind: processes, files, sockets, memory."""

from __future__ import annotations

import glob
import os
from collections import Counter
from pathlib import Path

from mooactor.process.files import PREFIX
from tests.clusters import Cluster, Program
from tests.conftest import eventually
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
        self._held = {pid: _descriptors(pid) for pid in self._pids}

    def after(self) -> list[str]:
        """All that is still there after time enough to go; each in a sentence."""
        found: list[str] = []

        def is_clean() -> bool:
            found[:] = self._found()
            return not found

        eventually(is_clean, PATIENCE_S)
        return found

    def _found(self) -> list[str]:
        more = self._all_files() - self._old_files
        ended = [one for one in self._programs if one.process.poll() is not None]
        return [
            *(f"process {one.pid} ({one.command()})" for one in self._of_act()),
            *(f"file {path}" for path in sorted(more)),
            *(f"of a host {one}" for one in self._more_held()),
            # All were started again after their kills.
            *(f"the end of {one}" for one in ended),
        ]

    def end(self) -> None:
        """Kill the processes that are left."""
        self._run.end(self._of_act())

    def _of_act(self) -> set[Process]:
        own = self._pids
        found = self._run.processes() - self._before
        return {one for one in found if one.pid not in own and not _is_janitor(one)}

    @property
    def _programs(self) -> list[Program]:
        if self._cluster is None:
            return []
        programs = [*self._cluster.members.values(), self._cluster.broker]
        return [program for program in programs if program is not None]

    @property
    def _pids(self) -> set[int]:
        return {program.pid for program in self._programs}

    def _all_files(self) -> set[str]:
        """Sessions have directories of their own. Nothing of ours may be in /dev/shm:
        shared memory goes with the last process that has it."""
        # `Path.rglob` fails where a directory goes meanwhile.
        found = ((at, d + f) for at, d, f in os.walk(self._directory))
        paths = (f"{at}/{one}" for at, names in found for one in names)
        ours = {path for path in paths if os.path.basename(path).startswith(PREFIX)}
        return ours | set(glob.glob("/dev/shm/*moo*"))

    def _more_held(self) -> list[str]:
        """Descriptors that a host or the broker has more than before the act."""
        return [
            f"{pid}: {dict(more)}"
            for pid in self._pids
            if pid in self._held and (more := _descriptors(pid) - self._held[pid])
        ]


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
