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
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from mooactor.host.eventloop import EventLoop
from mooactor.host.logs import Output
from mooactor.host.nursery import LocalProcess, Nursery
from mooactor.host.protocol import Printer
from mooactor.host.reaper import Reaper
from mooactor.process.protocol import Life
from mooactor.process.system import kill_group

if TYPE_CHECKING:
    from mooactor.host.guest import Guest
    from mooactor.host.home import Home
    from mooactor.host.remote import RemoteProcess


#: One process of an actor's, from the request for it until it is reaped.
Process: TypeAlias = "LocalProcess | RemoteProcess"


class End(msgspec.Struct, frozen=True):
    """How a process ended: its wait status, the last lines on its stderr, whether the
    kernel has killed for memory about then."""

    status: int
    stderr: tuple[str, ...]
    oom: bool


#: The receiver of a site's news, and of what its processes say.
Family: TypeAlias = "Home | Guest"


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
        self._processes: set[LocalProcess] = set()
        self._by_pid: dict[int, LocalProcess] = {}
        nursery.family = self
        reaper.add(self)

    @property
    def _news(self) -> Family:
        assert self.family is not None
        return self.family

    def __len__(self) -> int:
        return len(self._processes)

    # -- for the home ------------------------------------------------------

    def start(self, life: Life, fds: Sequence[int], tries: int = 0) -> LocalProcess:
        """Have a process started; `fds` are of its parcels, and stay the caller's.

        Raises:
          OSError: this host has no descriptor left for it, or no zygote.
        """
        process = self._nursery.ask(life, list(fds), tries)
        self._processes.add(process)
        self._loop.watch_line(process.line, self._news)
        return process

    def configure(self, path: list[bytes], argv: list[bytes]) -> None:
        """The values of the driver's program are those of its actors."""
        self._nursery.configure(path, argv, [])

    def preload(self, modules: list[str]) -> None:
        """Have modules imported before later processes are started."""
        self._nursery.preload(modules)

    def kill(self, process: Process) -> None:
        """Kill a process that is born, and all that it started."""
        if process.pid is not None:
            kill_group(process.pid)

    def disown(self, process: Process) -> None:
        """A process that is not born yet is not wanted any more, and closed."""
        assert isinstance(process, LocalProcess)
        self._nursery.disown(process)
        self._let_go(process)

    def _let_go(self, process: LocalProcess) -> None:
        """Close this side of a process that never ran, or has ended."""
        self._processes.remove(process)
        self._loop.close_line(process.line)
        process.close()
        for reader in process.readers:
            self._output.end(reader)

    # -- for the nursery ---------------------------------------------------

    def born(self, process: LocalProcess) -> None:
        """It is there: relay its output from now on."""
        assert process.pid is not None
        self._by_pid[process.pid] = process
        life = process.life
        about = (f"{life.actor_id:016x}", life.incarnation, self._where)
        printer = Printer(life.label, process.pid, *about)
        begin = partial(self._output.begin, printer=printer)
        process.readers = (begin(1, process.stdout), begin(2, process.stderr))
        self._news.born(process)

    def lost(self, process: LocalProcess) -> None:
        """The zygote died with the request for this process."""
        self._let_go(process)
        self._news.lost(process)

    def failed(self, process: LocalProcess, note: str) -> None:
        """The system, or the zygote, has no process for it."""
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
        for process in list(self._processes):
            if process.pid is not None:
                kill_group(process.pid)
            else:
                self._nursery.disown(process)
            self._let_go(process)
        self._nursery.close()


def is_full(error: BaseException) -> bool:
    """Whether `Site.start` failed because this process has no descriptor left."""
    return getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE)
