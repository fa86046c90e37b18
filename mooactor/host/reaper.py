# SPDX-License-Identifier: MIT
"""The agent's children: each that dies is reaped, and the site that had it is told.

Invariants: no child of the agent stays a zombie. One of nobody's (an orphan that an
actor has left behind) is reaped without a word. Nobody keeps the pid of a zygote that
was reaped: its line may end later, because children between it and an actor have it,
too, and whoever acts on that must not wait for the pid again, or kill it.

The kernel counts its kills for lack of memory, in the control group of this process,
and does not tell whom it has killed: a process that it kills for memory dies of SIGKILL
like any other. So the question is whether there was a kill since the last death. A kill
counts once.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from mooactor.host.eventloop import EventLoop

if TYPE_CHECKING:
    from mooactor.host.site import Site


class Reaper:
    """One for each agent. The kernel's signal wakes the event loop."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._parents: list[Site] = []
        self._oom_kills = OomKills(path_of_own_group())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # All that are dead at once, so that none waits in line.
        loop.wake_on_signals(self.reap)

    def add(self, parent: Site) -> None:
        """From here on children may be its own."""
        self._parents.append(parent)

    def remove(self, parent: Site) -> None:
        """Its children are nobody's now; does nothing if it was removed."""
        if parent in self._parents:
            self._parents.remove(parent)

    def reap(self) -> None:
        """Reap all children that are dead, and tell their parents."""
        dead = []
        while (pid := _dead_child()) is not None:
            for parent in self._parents:
                # `born` was sent before the kernel knew of this child.
                parent.read_births()
            owners = [parent for parent in self._parents if parent.dying(pid)]
            try:
                _, status = os.waitpid(pid, 0)
            except ChildProcessError:
                continue  # a zygote, reaped when its line ended just now
            for owner in owners:
                if not owner.zygote_reaped(pid, status):
                    dead.append((owner, pid, status))
        oom = bool(dead) and self._oom_kills.happened()
        with self._loop.together():
            for owner, pid, status in dead:
                owner.reaped(pid, status, oom)


def _dead_child() -> int | None:
    try:
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        found = os.waitid(os.P_ALL, 0, flags)
    except ChildProcessError:
        return None
    return None if found is None else found.si_pid


_KEY = b"oom_kill "
_MOST = 4096  # bytes of the file, which has some short lines


class OomKills:
    """Those that a file counts: the ``memory.events`` of a control group."""

    def __init__(self, path: str | None) -> None:
        """`path`: None, or that of a file that cannot be read, counts none."""
        self._path = path
        self._counted = self._count()

    def happened(self) -> bool:
        """Whether there was one since this was asked the last time."""
        before, self._counted = self._counted, self._count()
        return self._counted > before

    def _count(self) -> int:
        if self._path is None:
            return 0
        try:
            with open(self._path, "rb", buffering=0) as file:
                lines = file.read(_MOST).splitlines()
            return sum(int(x.split()[1]) for x in lines if x.startswith(_KEY))
        except (OSError, IndexError, ValueError):
            return 0


def path_of_own_group() -> str | None:
    """The file of this process's control group; None: it has none of version 2."""
    try:
        with open("/proc/self/cgroup") as file:
            own = next(line for line in file if line.startswith("0::"))[3:].strip()
    except (OSError, StopIteration):
        return None
    return f"/sys/fs/cgroup{own}/memory.events"
