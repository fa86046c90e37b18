# SPDX-License-Identifier: MIT
"""A process that ends what a test run leaves, when the run was killed.

It hears of the processes that the runner forks, a line of pid and start time each, and
waits for the runner's end; whatever killed that, nothing of the run lives on.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.processes import VARIABLE, Process, Run


class Guardian:
    """The guardian, as the runner sees it."""

    def __init__(self, run: Run, directory: str) -> None:
        words = [run.name, str(run.runner.pid), str(run.runner.started), directory]
        self._process = subprocess.Popen(
            [sys.executable, __file__, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={k: v for k, v in os.environ.items() if k != VARIABLE},
            start_new_session=True,  # no Ctrl-C reaches it
        )
        run.spared.add(self._process.pid)
        os.register_at_fork(after_in_child=self._note)

    def _note(self) -> None:
        """In a child that a test forked."""
        me, pipe = Process.of(os.getpid()), self._process.stdin
        if pipe is not None and not pipe.closed:
            os.write(pipe.fileno(), b"%d %d\n" % me)


class Notes:
    """Messages of the runner's forks about themselves, on stdin.

    Each has the pipe's other end: once all of them are gone, it is closed. So who is
    forked just as the runner is killed is heard of as well.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._text = b""
        self.over = False

    def read(self) -> None:
        """Take in what is there; blocks until there is something, or the end."""
        more = os.read(0, 4096)
        self.over = not more
        *lines, self._text = (self._text + more).split(b"\n")
        self._run.add({Process(*map(int, line.split())) for line in lines})

    def read_within(self, seconds: float) -> None:
        """As `read`, but gives up after a while."""
        if select.select([0], (), (), seconds)[0]:
            self.read()
        else:
            self.over = True


def wait_for_the_end(run: Run, notes: Notes) -> None:
    """Return when the runner is gone."""
    pidfd = os.pidfd_open(run.runner.pid)
    heard = [0, pidfd]
    while pidfd not in select.select(heard, (), ())[0]:
        notes.read()
        if notes.over:  # the runner has closed its end, and goes on
            heard.remove(0)
    os.close(pidfd)


def main(name: str, pid: str, started: str, directory: str) -> None:
    run = Run(name, Process(int(pid), int(started)))
    run.spared.add(os.getpid())
    notes = Notes(run)
    if run.runner.is_running():
        wait_for_the_end(run, notes)
    left: set[Process] = set()
    while not notes.over:
        found = run.processes()
        left |= found
        run.end(found)
        notes.read_within(10.0)
    if left := left | run.processes():
        pids = ", ".join(str(process.pid) for process in sorted(left))
        print(f"the tests were killed; ending what they left: {pids}", file=sys.stderr)
    run.end()
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
