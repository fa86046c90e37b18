# SPDX-License-Identifier: MIT
"""The agent's children: each that dies is reaped, and the site that had it is told.

Invariants: no child of the agent stays a zombie. One of nobody's (an orphan that an
actor has left behind) is reaped without a word. Nobody keeps the pid of a zygote that
was reaped: its line may end later, because children between it and an actor have it,
too, and whoever acts on that must not wait for the pid again, or kill it.
"""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import Protocol

from mooactor.host.eventloop import EventLoop
from mooactor.host.oomkills import OomKills, path_of_own_group


class Parent(Protocol):
    """A site, as the reaper sees it; see `site.Site`."""

    def read_births(self) -> None: ...
    def dying(self, pid: int) -> bool: ...
    def zygote_reaped(self, pid: int, status: int) -> bool: ...
    def reaped(self, pid: int, status: int, oom: bool) -> None: ...


class Reaper:
    """One for each agent. The kernel's signal wakes the event loop."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._parents: list[Parent] = []
        self._oom_kills = OomKills(loop, path_of_own_group())
        # The signal's number is written to the pipe, which wakes the loop up.
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        loop.watch(read, partial(self._children_died, read))

    def add(self, parent: Parent) -> None:
        """From here on children may be its own."""
        self._parents.append(parent)

    def remove(self, parent: Parent) -> None:
        """Its children are nobody's now; does nothing if it was removed."""
        if parent in self._parents:
            self._parents.remove(parent)

    def _children_died(self, pipe: int) -> None:
        """Some children are dead: all of them at once, so that none waits in line."""
        while len(_read(pipe)) == 4096:
            pass
        self.reap()

    def reap(self) -> None:
        """Reap all children that are dead, and tell their parents."""
        dead, killed = [], False
        while (pid := _dead_child()) is not None:
            for parent in self._parents:
                # `born` was sent before the kernel knew of this child.
                parent.read_births()
            owners = [parent for parent in self._parents if parent.dying(pid)]
            try:
                _, status = os.waitpid(pid, 0)
            except ChildProcessError:
                continue  # a zygote, reaped when its line ended just now
            killed |= bool(owners) and status == signal.SIGKILL
            for owner in owners:
                if not owner.zygote_reaped(pid, status):
                    dead.append((owner, pid, status))
        oom = killed and self._oom_kills.happened()
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


def _read(pipe: int) -> bytes:
    try:
        return os.read(pipe, 4096)
    except BlockingIOError:
        return b""
