# SPDX-License-Identifier: MIT
"""The agent's side of the zygote: processes are requested, and born.

A process is first *unborn*: the agent has its ends of the lifeline and of the output
pipes, and no pid. Messages may be posted already; they wait in the socket. With the
zygote's ``born`` it has a pid and is the agent's child, or will be in a moment. If
there is a spare process, the request goes to that, and ``born`` comes from it.

Invariants:

* Every process that was asked for ends up born, lost, failed or disowned. It is lost
  if the process that was asked, the zygote or a spare one, dies first; then it is
  asked for again, at most `_MOST_TRIES` times. The zygote's end says nothing of what a
  spare process becomes: two would live as the same actor.
* A spare process is used at most once. It is dropped when the zygote ends or is told to
  import more.
* A disowned process is killed as soon as its pid is known.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from mooactor.control.lifeline import Lifeline
from mooactor.control.messages import Malformed, Message
from mooactor.host import resources, zygote
from mooactor.host.eventloop import EventLoop, Line
from mooactor.host.output import LineReader
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
    from mooactor.host.site import Site

_MOST_TRIES = 3
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[3].split(':'); "
    "from mooactor.host.zygote import main; main(int(sys.argv[1]), int(sys.argv[2]))"
)


class LocalProcess(msgspec.Struct, eq=False):
    """A process of this host; see `site.Process`."""

    number: int
    life: Life
    parcels: list[int]  # descriptors that it gets beside its own
    line: Lifeline
    stdout: int
    stderr: int
    theirs: list[int] = []
    pid: int | None = None
    tries: int = 0
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


class Nursery:
    """Asks a zygote for processes, and starts another zygote when that dies."""

    def __init__(
        self,
        loop: EventLoop,
        *,
        python: str = sys.executable,
        cwd: bytes | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`python`: the interpreter of a zygote that is no fork of this process, `cwd`
        its directory, None: that of this process, and `environment` the variables that
        it has beside those of this process."""
        self._loop = loop
        self._python = python
        self._cwd = cwd
        self._environment = environment or {}
        self.family: Site | None = None  # set before the first request
        self._unborn: dict[int, LocalProcess] = {}
        self._numbers = 0
        self._config: Prepare | None = None
        self._modules: list[str] = []
        self._deadly: set[str] = set()  # modules that ended a zygote
        self._importing: str | None = None
        self._prepares = 0  # how often a zygote was told to import something
        self._line: Lifeline | None = None
        self._spare: Lifeline | None = None  # to a process that waits to be an actor
        self._becoming: dict[Line, int] = {}  # to one that becomes that child
        self._pid: int | None = None
        self._status: int | None = None  # of the zygote, once it is reaped
        self._deaths = 0  # of zygotes, since one made a process
        self.closed = False

    @property
    def _news(self) -> Site:
        assert self.family is not None
        return self.family

    # -- the zygote --------------------------------------------------------

    def fork_zygote(self) -> None:
        """Start the first one, before this process has anything that a fork must not
        share."""
        ours, theirs = socket.socketpair()
        agent = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                zygote.main(theirs.fileno(), agent)
            finally:
                os._exit(0)
        theirs.close()
        self._watch(pid, ours)

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
        self._watch(pid, ours)
        if self._prepares:  # as the one before it was told; its number counts on
            self._prepare(self._modules, self._config)

    def _watch(self, pid: int, ours: socket.socket) -> None:
        self._pid, self._status, self._line = pid, None, Lifeline(ours)
        self._loop.watch_line(self._line, self)

    def configure(
        self, path: list[bytes], argv: list[bytes], modules: list[str]
    ) -> None:
        """Send the zygote the modules to import, and the path to them."""
        self._config = Prepare(0, [], path, argv, self._cwd)
        self._modules = list(modules)
        self._prepare(self._modules, self._config)

    def preload(self, modules: list[str]) -> None:
        """Have it import these, too, before it forks for later requests."""
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

    # -- births ------------------------------------------------------------

    def ask(self, life: Life, parcels: list[int], tries: int = 0) -> LocalProcess:
        """Ask for a process. It gets duplicates of the parcels' descriptors.

        Raises:
          OSError: there is no descriptor left for it, or no zygote.
        """
        process = self._conceive(life, parcels)
        process.tries = tries + 1
        try:
            self._request(process)
        except BaseException:
            process.close()
            raise
        finally:
            for fd in process.theirs:
                os.close(fd)
            process.theirs.clear()
        return process

    def _conceive(self, life: Life, parcels: list[int]) -> LocalProcess:
        self._numbers += 1
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
        return LocalProcess(self._numbers, life, parcels, lifeline, out, err, ends)

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
        self._unborn[process.number] = process

    def disown(self, process: LocalProcess) -> None:
        """It is not wanted any more, and has no pid yet."""
        self._unborn.pop(process.number, None)

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
            process = self._unborn.pop(message.number, None)
            if process is not None:
                self._news.failed(process, message.note)
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
        process = self._unborn.pop(message.number, None)
        if process is None:
            kill_group(message.pid)  # disowned; reaped when it is the agent's child
            return
        process.pid = message.pid
        self._news.born(process)

    def _end_of(self, numbers: Iterable[int], why: str) -> None:
        """Those of them that are unborn now will not be born."""
        for number in numbers:
            process = self._unborn.pop(number, None)
            if process is not None:
                self._lost(process, why)

    def _lost(self, process: LocalProcess, why: str) -> None:
        if process.tries < _MOST_TRIES:
            self._news.lost(process)
        else:
            self._news.failed(process, why)

    def line_closed(self, line: Line) -> None:
        """The zygote is dead, and so is every process in between of its making; or one
        that was to become an actor has, or is dead."""
        line.close()
        if line is self._spare:
            self._spare = None
        if (number := self._becoming.pop(line, None)) is not None:
            self._end_of([number], "the process that should have become it was killed")
        if line is not self._line:
            return
        self._line = None
        self._drop_spare()
        if self.closed:
            return
        why = self._report()
        self._deaths += 1
        if self._deaths <= _MOST_TRIES:
            self._exec_again()
        # The fate of a spare process is told by its own line, or by the end of that.
        self._end_of(set(self._unborn) - set(self._becoming.values()), why)

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

    # -- reaping -----------------------------------------------------------

    def read(self) -> None:
        """Act on the births that were told by now."""
        for line in (self._line, *self._becoming):
            if line is not None:
                self._loop.read_line(line)

    def is_zygote(self, pid: int) -> bool:
        """Whether that is the present zygote."""
        return pid == self._pid

    def zygote_reaped(self, pid: int, status: int) -> bool:
        """A child is gone. Whether that was the zygote."""
        if pid != self._pid:
            return False
        self._pid, self._status = None, status
        return True

    def close(self) -> None:
        """End the zygote. Processes that are unborn then never run, if the agent's ends
        of their lifelines are closed."""
        self.closed = True
        self._unborn.clear()
        # One that was adopted before that runs already, and its birth was told before:
        # it is disowned, and killed.
        self.read()
        self._drop_spare()
        for line in list(self._becoming):
            self._loop.close_line(line)
        if self._pid is not None:
            kill_group(self._pid)
            os.waitpid(self._pid, 0)
            self._pid = None
        if self._line is not None:
            self._loop.close_line(self._line)
