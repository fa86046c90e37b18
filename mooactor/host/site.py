# SPDX-License-Identifier: MIT
"""Where a session's processes are: on this host, or on another one.

The home of a session, its one brain, has them started, and asks no further how: a
`Site` of its own host has a zygote and output pipes, a `remote.RemoteSite` has an agent
to talk to. Invariants of both:

* Of each process that was started the family hears ``born`` with its pid, and later
  ``exited``; or, without either, ``lost`` (ask again) or ``failed`` (the host cannot).
  It hears nothing more of a process that it has disowned.
* Everything that a process has said over its line comes before ``exited``.
* ``exited`` comes after its process group is killed, and its output is read.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from functools import partial
from typing import Protocol

import msgspec

from mooactor.host import resources
from mooactor.host.eventloop import EventLoop, Line, Listener
from mooactor.host.logs import Output
from mooactor.host.nursery import Child, Nursery
from mooactor.host.output import LineReader
from mooactor.host.protocol import Printer
from mooactor.host.reaper import Reaper
from mooactor.process.protocol import Life, unpacked
from mooactor.process.system import kill_group


class Process(Protocol):
    """One process of an actor's, from the request for it until it is reaped."""

    @property
    def pid(self) -> int | None:
        """None until it is born."""

    @property
    def cores(self) -> list[int]:
        """Those that it is bound to; empty: none."""

    @property
    def cuda_visible_devices(self) -> str | None:
        """That variable in its environment; None: it is not set."""

    @property
    def line(self) -> Line: ...
    @property
    def tries(self) -> int:
        """The number of requests for it, this one included."""


class End(msgspec.Struct, frozen=True):
    """How a process ended: its wait status, the last lines on its stderr, whether the
    kernel has killed for memory about then."""

    status: int
    stderr: tuple[str, ...]
    oom: bool


class Family(Listener, Protocol):
    """The receiver of a site's news, and of what its processes say."""

    def born(self, process: Process) -> None: ...
    def lost(self, process: Process) -> None: ...
    def failed(self, process: Process, note: str) -> None: ...
    def dying(self, process: Process) -> None: ...
    def exited(self, process: Process, end: End) -> None: ...


class Place(Protocol):
    """The interface of each site for a home."""

    @property
    def host(self) -> str:
        """The name of its host."""

    def start(self, life: Life, fds: Sequence[int], tries: int = 0) -> Process:
        """Have a process started; `fds` are of its parcels, and stay the caller's.

        Raises:
          OSError: this host has no descriptor left for it, or no zygote.
        """

    def preload(self, modules: list[str]) -> None:
        """Have modules imported before later processes are started."""

    def kill(self, process: Process) -> None:
        """Kill a process that is born, and all that it started."""

    def disown(self, process: Process) -> None:
        """A process that is not born yet is not wanted any more, and closed."""


class LocalProcess(msgspec.Struct, eq=False):
    """A process of this host."""

    child: Child
    readers: tuple[LineReader, ...] = ()

    @property
    def pid(self) -> int | None:
        return self.child.pid

    @property
    def cores(self) -> list[int]:
        return list(self.child.life.cores)

    @property
    def cuda_visible_devices(self) -> str | None:
        return resources.set_for(unpacked(self.child.life.env))

    @property
    def line(self) -> Line:
        return self.child.lifeline

    @property
    def tries(self) -> int:
        return self.child.tries


class Site:
    """The processes of one session on this host."""

    def __init__(
        self,
        host: str,
        loop: EventLoop,
        nursery: Nursery,
        reaper: Reaper,
        output: Output,
        *,
        where: str = "",
    ) -> None:
        """`where`: the host in front of each line that a process prints, if that is not
        the driver's."""
        self.host = host
        self._where = where
        self._loop = loop
        self._nursery = nursery
        self._reaper = reaper
        self._output = output
        self.family: Family | None = None  # set before the first process
        self._by_child: dict[Child, LocalProcess] = {}
        self._by_pid: dict[int, LocalProcess] = {}
        nursery.family = self
        reaper.add(self)

    @property
    def _news(self) -> Family:
        assert self.family is not None
        return self.family

    def __len__(self) -> int:
        return len(self._by_child)

    # -- for the home ------------------------------------------------------

    def start(self, life: Life, fds: Sequence[int], tries: int = 0) -> Process:
        child = self._nursery.ask(life, list(fds), tries)
        process = self._by_child[child] = LocalProcess(child)
        self._loop.watch_line(child.lifeline, self._news)
        return process

    def configure(self, path: list[bytes], argv: list[bytes]) -> None:
        """The values of the driver's program are those of its actors."""
        self._nursery.configure(path, argv, [])

    def preload(self, modules: list[str]) -> None:
        self._nursery.preload(modules)

    def kill(self, process: Process) -> None:
        if process.pid is not None:
            kill_group(process.pid)

    def disown(self, process: Process) -> None:
        assert isinstance(process, LocalProcess)
        self._nursery.disown(process.child)
        self._let_go(process)

    def _let_go(self, process: LocalProcess) -> None:
        """Close this side of a process that never ran, or has ended."""
        del self._by_child[process.child]
        self._loop.close_line(process.line)
        if process.readers:
            process.line.close()
            for reader in process.readers:
                self._output.end(reader)
        else:
            process.child.close()

    # -- for the nursery ---------------------------------------------------

    def born(self, child: Child) -> None:
        """Its process is there: relay its output from now on."""
        process = self._by_child[child]
        assert child.pid is not None
        self._by_pid[child.pid] = process
        life = child.life
        about = (f"{life.actor_id:016x}", life.incarnation, self._where)
        printer = Printer(life.label, child.pid, *about)
        begin = partial(self._output.begin, printer=printer)
        process.readers = (begin(1, child.stdout), begin(2, child.stderr))
        self._news.born(process)

    def lost(self, child: Child) -> None:
        """The zygote died with the request for this process."""
        process = self._by_child[child]
        self._let_go(process)
        self._news.lost(process)

    def failed(self, child: Child, note: str) -> None:
        """The system, or the zygote, has no process for it."""
        process = self._by_child[child]
        self._let_go(process)
        self._news.failed(process, note)

    # -- for the reaper ----------------------------------------------------

    def read_births(self) -> None:
        """Read what the zygote has sent: every child that has died is known then."""
        self._nursery.read()

    def dying(self, pid: int) -> bool:
        """A child is dead and about to be reaped; until then its pid is its own.
        Whether it is of this site."""
        process = self._by_pid.get(pid)
        if process is not None:
            kill_group(pid)  # all that it started dies with it
            self._news.dying(process)
        return process is not None or self._nursery.is_zygote(pid)

    def zygote_reaped(self, pid: int, status: int) -> bool:
        """One of its children is gone. Whether that was the zygote."""
        return self._nursery.zygote_reaped(pid, status)

    def reaped(self, pid: int, status: int, oom: bool) -> None:
        """One of its processes is gone."""
        process = self._by_pid.pop(pid, None)
        if process is None:
            return  # it was let go meanwhile
        self._loop.read_to_the_end(process.line)  # ready, failed, stopping, spawn
        self._let_go(process)
        stderr = tuple(process.readers[1].tail)
        self._news.exited(process, End(status, stderr, oom))

    def close(self) -> None:
        """Kill what runs; nothing is started any more, and the zygote ends.

        The lines of the unborn are closed before the nursery reads the last births: no
        process falls in between.
        """
        self._reaper.remove(self)
        for process in list(self._by_child.values()):
            if process.pid is not None:
                kill_group(process.pid)
            else:
                self._nursery.disown(process.child)
            self._let_go(process)
        self._nursery.close()


def is_full(error: BaseException) -> bool:
    """Whether `Site.start` failed because this process has no descriptor left."""
    return getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE)
