# SPDX-License-Identifier: MIT
"""The kernel's kills for lack of memory, in the control group of this process.

The kernel counts them, and does not tell whom it has killed: a process that it kills
for memory dies of SIGKILL like any other. So the question is whether there was a kill
about then. Invariants:

* A kill counts for one question, and for `_FRESH_S` after the kernel's notice of it, or
  a little longer: not for a process that is killed days later.
* Where the kernel gives no notice, the kills since the last question count. It does for
  control groups of version 2, and only those have the file.
* Notices wake the agent at most twice in `_FRESH_S`, and nothing else here does.
"""

from __future__ import annotations

import contextlib
import os
import select
from functools import partial

from mooactor.host.eventloop import EventLoop

# A killed process gives its memory back, some GB in a second, before its death is told.
_FRESH_S = 5.0
_KEY = b"oom_kill "
_MOST = 4096  # bytes of the file, which has some short lines


class OomKills:
    """Those that a file counts: the ``memory.events`` of a control group."""

    def __init__(self, loop: EventLoop, path: str | None) -> None:
        """`path`: None, or that of a file that cannot be read, counts none."""
        self._loop = loop
        self._fd = -1
        if path is not None:
            with contextlib.suppress(OSError):
                self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._counted = self._count()
        self._notices = _notices_of(self._fd)
        self._watch()

    def happened(self) -> bool:
        """Whether there was one about now; each is told once."""
        before, self._counted = self._counted, self._count()
        return self._counted > before

    def _count(self) -> int:
        # The kernel takes this for the reader's word that it has seen the notice.
        try:
            lines = os.pread(self._fd, _MOST, 0).splitlines()
            return sum(int(x.split()[1]) for x in lines if x.startswith(_KEY))
        except (OSError, IndexError, ValueError):
            return 0

    # -- notices: the count is old after a while ---------------------------------

    def _watch(self) -> None:
        if self._notices is not None:
            self._loop.watch(self._notices.fileno(), self._noticed)

    def _noticed(self) -> None:
        # A group at its limit has notices all the time: none is heard until then.
        assert self._notices is not None
        self._loop.unwatch(self._notices.fileno())
        self._loop.later(_FRESH_S, partial(self._grow_old, self._count()))

    def _grow_old(self, count: int) -> None:
        self._counted = max(self._counted, count)
        if (now := self._count()) > count:  # meanwhile, so these are fresh
            self._loop.later(_FRESH_S, partial(self._grow_old, now))
        else:
            self._watch()

    def close(self) -> None:
        """For tests: an agent has it as long as it lives."""
        if self._notices is not None:
            self._loop.unwatch(self._notices.fileno())
            self._notices.close()
        if self._fd >= 0:
            os.close(self._fd)


def _notices_of(fd: int) -> select.epoll | None:
    """It is readable when there is a notice: the kernel's are urgent data, for which
    the event loop has no name. None: the file gives none."""
    notices = select.epoll()
    try:
        notices.register(fd, select.EPOLLPRI)
    except (OSError, ValueError):  # a plain file, or none
        notices.close()
        return None
    return notices


def path_of_own_group() -> str | None:
    """The file of this process's control group; None: it has none of version 2."""
    try:
        with open("/proc/self/cgroup") as file:
            own = next(line for line in file if line.startswith("0::"))[3:].strip()
    except (OSError, StopIteration):
        return None
    return f"/sys/fs/cgroup{own}/memory.events"
