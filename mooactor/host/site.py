# SPDX-License-Identifier: MIT
"""A session's processes on one host, and the agent's children of whatever kind.

The home of a session, its one brain, has processes started, and asks no further how: a
`Site` of its own host has a zygote and output pipes, a `remote.RemoteSite` has an agent
to talk to. Invariants of both:

* Of each process that was started the family hears `Born` with its pid, and later
  `Dying` and `Exited`; or, without these, `Failed`, and whether to ask again. It hears
  nothing more of a process that it has disowned.
* Everything that a process has said over its line comes before `Exited`.
* `Exited` comes after its process group is killed, and its output is read.

At a `Site` a process is first *unborn*: the agent has its ends of the lifeline and of
the output pipes, and no pid. Messages may be posted already; they wait in the socket.
With the zygote's ``born`` it has a pid and is the agent's child, or will be soon. If
there is a spare process, the request goes to that, and ``born`` comes from it.

* A process is to be asked for again if the one that was asked, the zygote or a spare
  one, dies first. The zygote's end says nothing of what a spare process becomes: two
  would live as the same actor.
* A spare process is used at most once. It is dropped when the zygote ends or is told to
  import more.
* A disowned process is killed as soon as its pid is known.

The `Reaper` reaps every child that dies, and tells the site that had it. No child of
the agent stays a zombie. One of nobody's (an orphan that an actor has left behind) is
reaped without a word. Nobody keeps the pid of a zygote that was reaped: its line may
end later, because children between it and an actor have it, too, and whoever acts on
that must not wait for the pid again, or kill it.

The kernel counts its kills for lack of memory, in the control group of this process,
and does not tell whom it has killed: a process that it kills for memory dies of SIGKILL
like any other. So the question is whether there was a kill since the last death. A kill
counts once.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec.structs import replace

from mooactor.control.lifeline import Lifeline
from mooactor.control.messages import Malformed, Message, readable
from mooactor.host import protocol, resources, zygote
from mooactor.host.eventloop import EventLoop, Line
from mooactor.host.output import LineReader, Output, Printer
from mooactor.host.zygote import (
    NEWS,
    Birth,
    Born,
    Done,
    Importing,
    Prepare,
    Spare,
    SpareUsed,
    Unborn,
)
from mooactor.process.protocol import Life, unpacked
from mooactor.process.system import kill_group

if TYPE_CHECKING:
    from mooactor.host.guest import Guest
    from mooactor.host.home import Home
    from mooactor.host.remote import RemoteProcess

_MOST_ZYGOTES = 4  # one after the other that make no process
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[3].split(':'); "
    "from mooactor.host.zygote import main; main(int(sys.argv[1]), int(sys.argv[2]))"
)

#: One process of an actor's, from the request for it until it is reaped.
Process: TypeAlias = "LocalProcess | RemoteProcess"

#: The receiver of a site's news, and of what its processes say.
Family: TypeAlias = "Home | Guest"

#: A zygote: its pid, and the agent's end of the line to it.
Zygote: TypeAlias = "tuple[int, socket.socket]"


class LocalProcess(msgspec.Struct, eq=False):
    """A process of this host."""

    number: int
    life: Life
    parcels: list[int]  # descriptors that it gets beside its own
    line: Lifeline
    stdout: int
    stderr: int
    theirs: list[int] = []
    pid: int | None = None
    readers: tuple[LineReader, ...] = ()  # which have the outputs, once it is born

    @property
    def cores(self) -> list[int]:
        return list(self.life.cores)

    @property
    def cuda_visible_devices(self) -> str | None:
        return resources.set_for(unpacked(self.life.env))

    def close(self) -> None:
        """Close the agent's ends."""
        self.line.close()
        if not self.readers:
            os.close(self.stdout)
            os.close(self.stderr)


def fork_zygote() -> Zygote:
    """Start one, before this process has anything that a fork must not share."""
    ours, theirs = socket.socketpair()
    agent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            zygote.main(theirs.fileno(), agent)
        finally:
            os._exit(0)
    theirs.close()
    return pid, ours


class Site:
    """The processes of one session on this host."""

    def __init__(
        self,
        host: str,
        loop: EventLoop,
        reaper: Reaper,
        output: Output,
        *,
        where: str = "",
        python: str = sys.executable,
        cwd: bytes | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`where`: the host in front of each line that a process prints, if that is not
        the driver's. `python`: the interpreter of a zygote that is no fork of this
        process, `cwd` its directory, None: that of this process, and `environment` the
        variables that it has beside those of this process."""
        self.host = host
        self._where = where
        self._loop = loop
        self._reaper = reaper
        self._output = output
        self._python = python
        self._cwd = cwd
        self._environment = environment or {}
        self.family: Family | None = None  # set before the first process
        self._processes: dict[int, LocalProcess] = {}  # by number
        self._by_pid: dict[int, LocalProcess] = {}
        self._numbers = 0
        self._config: Prepare | None = None
        self._modules: list[str] = []
        self._deadly: set[str] = set()  # modules that ended a zygote
        self._importing: str | None = None
        self._prepares = 0  # how often a zygote was told to import something
        self._line: Lifeline | None = None  # to the zygote
        self._spare: Lifeline | None = None  # to a process that waits to be an actor
        self._becoming: dict[Lifeline, int] = {}  # to one that becomes that child
        self._pid: int | None = None  # of the zygote
        self._status: int | None = None  # of the zygote, once it is reaped
        self._deaths = 0  # of zygotes, since one made a process
        self._closed = False
        reaper.add(self)

    @property
    def _news(self) -> Family:
        assert self.family is not None
        return self.family

    def __len__(self) -> int:
        return len(self._processes)

    def get(self, number: int) -> LocalProcess | None:
        """The process of that number, if it has not ended."""
        return self._processes.get(number)

    # -- the zygote --------------------------------------------------------

    def exec_zygote(self) -> None:
        """Start one that is no fork: the agent is not what it was at its start.

        Raises:
          OSError: the system refuses it, or its directory is gone.
        """
        if self._cwd is not None and not os.path.isdir(self._cwd):
            raise OSError(
                f"the directory {os.fsdecode(self._cwd)}, in which the program runs, "
                "is gone"
            )
        ours, theirs = socket.socketpair()
        try:
            os.set_inheritable(theirs.fileno(), True)
            numbers = [str(theirs.fileno()), str(os.getpid())]
            said = None if self._config is None else self._config.path
            path = b":".join(map(os.fsencode, sys.path) if said is None else said)
            program = [self._python, "-c", _PROGRAM, *numbers, os.fsdecode(path)]
            defaults = [signal.SIGINT, signal.SIGCHLD, signal.SIGTTOU]
            variables = {**os.environ, **self._environment}
            pid = os.posix_spawn(self._python, program, variables, setsigdef=defaults)
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self.adopt_zygote((pid, ours))
        if self._prepares:  # as the one before it was told; its number counts on
            self._prepare(self._modules, self._config)

    def adopt_zygote(self, made: Zygote) -> None:
        """Have this one fork the processes."""
        self._pid, ours = made
        self._status, self._line = None, Lifeline(ours)
        self._loop.watch_line(self._line, self)

    def configure(
        self, path: list[bytes], argv: list[bytes], modules: Sequence[str] = ()
    ) -> None:
        """The values of the driver's program are those of its actors. Send the zygote
        the modules to import, and the path to them."""
        self._config = Prepare(0, [], path, argv, self._cwd)
        self._modules = list(modules)
        self._prepare(self._modules, self._config)

    def preload(self, modules: list[str]) -> None:
        """Have modules imported before later processes are started."""
        known = {*self._modules, *self._deadly}
        more = [module for module in modules if module not in known]
        if more:
            self._modules += more
            self._prepare(more, None)

    def _prepare(self, modules: list[str], config: Prepare | None) -> None:
        self._drop_spare()
        self._prepares += 1
        about = config or Prepare(0, [])
        self._tell(replace(about, number=self._prepares, modules=modules))

    def _tell(self, message: Message, fds: list[int] | None = None) -> None:
        if self._line is not None:
            self._loop.post(self._line, message, fds or [])

    def _take_spare(self, message: Spare, fds: list[int]) -> None:
        self._drop_spare()
        if message.prepared != self._prepares or not fds:
            return  # it lacks what the zygote was told to import meanwhile
        try:
            self._spare = Lifeline(socket.socket(fileno=os.dup(fds[0])))
        except OSError:
            return  # no descriptor is left for it
        self._loop.watch_line(self._spare, self)

    def _drop_spare(self) -> None:
        if self._spare is not None:
            self._loop.close_line(self._spare)

    # -- for the home ------------------------------------------------------

    def start(
        self,
        life: Life,
        fds: Sequence[int],
        number: int | None = None,
    ) -> LocalProcess:
        """Have a process started. It gets duplicates of `fds`, which are of its
        parcels. `number`: that of another home; all of one site have one of that
        home's, or none has.

        Raises:
          OSError: this host has no descriptor left for it, or no zygote.
        """
        if number is None:
            self._numbers = number = self._numbers + 1
        process = self._conceive(number, life, list(fds))
        try:
            self._request(process)
        except BaseException:
            process.close()
            raise
        finally:
            for fd in process.theirs:
                os.close(fd)
            process.theirs.clear()
        self._processes[process.number] = process
        self._loop.watch_line(process.line, self._news)
        return process

    def _conceive(self, number: int, life: Life, parcels: list[int]) -> LocalProcess:
        opened: list[int] = []
        try:
            ours, theirs = socket.socketpair()
            opened += [ours.detach(), theirs.detach()]
            for _ in range(2):
                opened += os.pipe()
        except OSError:
            for fd in opened:
                os.close(fd)
            raise
        line, their_line, out, their_out, err, their_err = opened
        for fd in (out, err):
            os.set_blocking(fd, False)
        lifeline = Lifeline(socket.socket(fileno=line))
        ends = [their_line, their_out, their_err]
        return LocalProcess(number, life, parcels, lifeline, out, err, ends)

    def _request(self, process: LocalProcess) -> None:
        if self._line is None and (error := self._exec_again()):
            raise OSError(f"the zygote died, and no other one can be started: {error}")
        message = Birth(process.number, process.life)
        fds = [*process.theirs, *process.parcels]
        if self._spare is None:
            self._tell(message, fds)
        else:
            self._loop.post(self._spare, message, fds)
            self._becoming[self._spare], self._spare = process.number, None
            self._tell(SpareUsed())

    def kill(self, process: Process) -> None:
        """Kill a process that is born, and all that it started."""
        if process.pid is not None:
            kill_group(process.pid)

    def disown(self, process: Process) -> None:
        """A process that is not born yet is not wanted any more, and closed."""
        assert isinstance(process, LocalProcess)
        self._let_go(process)

    def _let_go(self, process: LocalProcess) -> None:
        """Close this side of a process that never ran, or has ended."""
        del self._processes[process.number]
        self._loop.close_line(process.line)
        process.close()
        for reader in process.readers:
            self._output.end(reader)

    def _unborn(self) -> dict[int, LocalProcess]:
        return {n: one for n, one in self._processes.items() if one.pid is None}

    # -- messages of the zygote --------------------------------------------

    def handle(self, line: Line, data: bytes, fds: list[int]) -> None:
        try:
            message = NEWS.decode(data)
        except Malformed as error:  # from a module that was imported there
            print(f"mooactor: the zygote sent nonsense: {error}", file=sys.stderr)
            self._loop.close_line(line)
            return
        if isinstance(message, Born):
            self._born(message)
        elif isinstance(message, Unborn):
            self._fails(message.number, message.note)
        elif isinstance(message, Done):
            why = "the process that should have forked it was killed"
            self._end_of(message.numbers, why)
        elif isinstance(message, Spare):
            self._take_spare(message, fds)
        elif isinstance(message, Importing):
            self._importing = message.module
        else:
            self._importing = None

    def _born(self, message: Born) -> None:
        self._deaths = 0
        process = self._processes.get(message.number)
        if process is None:
            kill_group(message.pid)  # disowned; reaped when it is the agent's child
            return
        process.pid = message.pid
        self._by_pid[message.pid] = process
        life = process.life
        about = (f"{life.actor_id:016x}", life.incarnation, self._where)
        printer = Printer(life.label, message.pid, *about)
        begin = partial(self._output.begin, printer=printer)
        process.readers = (begin(1, process.stdout), begin(2, process.stderr))
        devices = process.cuda_visible_devices
        if devices is not None:  # anything, if the user has set it
            devices = readable(devices, protocol.MOST_OF_DEVICES)
        told = protocol.Born(process.number, message.pid, process.cores, devices)
        self._news.happened(process, told)

    def _fails(self, number: int, note: str, again: bool = False) -> None:
        process = self._processes.get(number)
        if process is not None and process.pid is None:
            self._let_go(process)
            told = protocol.Failed(number, readable(note), again)
            self._news.happened(process, told)

    def _end_of(self, numbers: Iterable[int], why: str) -> None:
        """Those of them that are unborn now will not be born."""
        for number in numbers:
            self._fails(number, why, again=True)

    def line_closed(self, line: Line) -> None:
        """The zygote is dead, and so is every process in between of its making; or one
        that was to become an actor has, or is dead."""
        assert isinstance(line, Lifeline)
        line.close()
        if line is self._spare:
            self._spare = None
        if (number := self._becoming.pop(line, None)) is not None:
            self._end_of([number], "the process that should have become it was killed")
        if line is not self._line:
            return
        self._line = None
        self._drop_spare()
        if self._closed:
            return
        why = self._report()
        self._deaths += 1
        if self._deaths < _MOST_ZYGOTES:
            self._exec_again()
        # The fate of a spare process is told by its own line, or by the end of that.
        self._end_of(set(self._unborn()) - set(self._becoming.values()), why)

    def _exec_again(self) -> OSError | None:
        """Start another one; the error if that cannot be."""
        try:
            self.exec_zygote()
        except OSError as error:
            print(f"mooactor: no other zygote can be started: {error}", file=sys.stderr)
            return error  # the next request tries again
        return None

    def _report(self) -> str:
        """Report on stderr that it died, and the cause."""
        if self._pid is not None:
            kill_group(self._pid)  # it may merely have closed its end
            _, self._status = os.waitpid(self._pid, 0)
            self._pid = None
        why = "the zygote, from which actors are forked, died"
        if self._status is not None:
            code = os.waitstatus_to_exitcode(self._status)
            how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
            why += f" {how}"
        if self._importing is not None:
            # Without this limit it would go on for ever.
            self._modules = [m for m in self._modules if m != self._importing]
            self._deadly.add(self._importing)
            why += f" while it imported {self._importing}, which is no longer preloaded"
            self._importing = None
        print(f"mooactor: {why}", file=sys.stderr, flush=True)
        return why

    # -- for the reaper ----------------------------------------------------

    def read_births(self) -> None:
        """Read what the zygote has sent: every child that has died is known then."""
        for line in (self._line, *self._becoming):
            if line is not None:
                self._loop.read_line(line)

    def dying(self, pid: int) -> bool:
        """A child is dead and about to be reaped; until then its pid is its own.
        Whether it is of this site."""
        process = self._by_pid.get(pid)
        if process is not None:
            kill_group(pid)  # all that it started dies with it
            self._news.happened(process, protocol.Dying(process.number))
        return process is not None or pid == self._pid

    def reaped(self, pid: int, status: int) -> LocalProcess | None:
        """One of its children is gone: the process that it was, if it was one that it
        still has. Then `exited` comes."""
        if pid == self._pid:
            self._pid, self._status = None, status
            return None
        return self._by_pid.pop(pid, None)

    def exited(self, process: LocalProcess, status: int, oom: bool) -> None:
        """One of its processes is gone."""
        if process.number not in self._processes:
            return  # it was let go meanwhile
        self._loop.read_to_the_end(process.line)  # ready, failed, stopping, spawn
        self._let_go(process)
        number, stderr = process.number, list(process.readers[1].tail)
        self._news.happened(process, protocol.Exited(number, status, stderr, oom))

    def close(self) -> None:
        """Kill what runs; nothing is started any more, and the zygote ends.

        The lines of the unborn are closed before the last births are read: no process
        falls in between.
        """
        self._reaper.remove(self)
        self._closed = True
        for process in list(self._processes.values()):
            self.kill(process)
            self._let_go(process)
        # One that was adopted before that runs already, and its birth was told before:
        # it is disowned, and killed.
        self.read_births()
        self._drop_spare()
        for line in list(self._becoming):
            self._loop.close_line(line)
        if self._pid is not None:
            kill_group(self._pid)
            os.waitpid(self._pid, 0)
            self._pid = None
        if self._line is not None:
            self._loop.close_line(self._line)


def is_full(error: BaseException) -> bool:
    """Whether `Site.start` failed because this process has no descriptor left."""
    return getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE)


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
                if (process := owner.reaped(pid, status)) is not None:
                    dead.append((owner, process, status))
        oom = bool(dead) and self._oom_kills.happened()
        with self._loop.together():
            for owner, process, status in dead:
                owner.exited(process, status, oom)


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
