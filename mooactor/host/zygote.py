# SPDX-License-Identifier: MIT
"""The zygote: a warm process with one thread, from which actors are forked.

One runs in each session. It imports the modules that actors will need, numpy and torch
above all, so that a fork takes milliseconds and shares their memory. It forks twice:
the process in between exits at once, whereupon the kernel makes the actor a child of
the agent (its ``PR_SET_CHILD_SUBREAPER``), which watches and reaps it.

Invariants:

* The agent forks nothing and imports nothing of the user's; a slow import here delays
  new actors and nothing else.
* Of each request the agent hears exactly one of ``born`` with the pid, ``unborn`` with
  the reason, and ``done`` without either (the process in between was killed); or the
  line ends.
* ``born`` is sent before the process in between exits, or by the new process itself,
  so the agent knows the pid before the kernel can tell it of that child's death.
* One process at a time writes to the zygote's line.
* No user code runs before the actor is the agent's child and has asked the kernel to be
  killed with it. An actor that finds the agent gone exits instead.
* Nothing here starts a thread; `threads` keeps libraries from starting any.
* The zygote dies with the agent. Its own death harms no actor.
* A spare process becomes an actor, or ends with its line. It has everything that the
  zygote has imported.

A request is a message with the descriptors of the new process: its lifeline, its two
output pipes and those of its parcels. Requests that have come together are forked by
one process in between, which saves half of the forks of a group. When none waits and no
actor is starting a spare process is forked, and the agent gets the other end of its
line. It sends the next request there: that actor waits neither for a fork (two take
6 ms, and 16 ms where torch is loaded) nor for the zygote, and finds the pages copied
that it will write to (see `pages`).
"""

import gc
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, NamedTuple

from msgspec import Meta

from mooactor.control import generators
from mooactor.control.lifeline import Lifeline, LifelineClosed
from mooactor.control.messages import Decoder, Id, Message, Names, Path, Paths, Text
from mooactor.host import pages
from mooactor.host.pages import Starts, note_pid
from mooactor.process import signals
from mooactor.process.actor import life, threads
from mooactor.process.actor.life import live
from mooactor.process.current import importing
from mooactor.process.protocol import Life
from mooactor.process.system import close_all_but, die_with, libc, name_process
from mooactor.tensors.limits import default_memory_limit

#: So long without a request; then a spare process is forked. Meanwhile an actor whose
#: start is over connects to its first caller.
_QUIET_MS = 4
_OURS = (0, 1, 2)
_LEAST = 32  # the least number of a descriptor that an import opens
#: Those that the modules opened which are preloaded: actors have them, too.
_opened: set[int] = set()
_LINE = 3  # the number of the lifeline's descriptor in an actor; its parcels follow


# -- messages of the agent ---------------------------------------------------


class Prepare(Message):
    """Import these modules; before, take over what is given."""

    number: Id
    modules: Names
    path: Paths | None = None
    argv: Paths = []
    cwd: Path | None = None


class Birth(Message):
    """Fork a process, which gets the descriptors that come with this."""

    number: Id
    life: Life


class SpareUsed(Message):
    """The spare process becomes an actor."""


ORDERS: Decoder[Message] = Decoder(Prepare, Birth, SpareUsed)


# -- messages to the agent ---------------------------------------------------


class Born(Message):
    number: Id
    pid: Id


class Unborn(Message):
    number: Id
    note: Text


class Done(Message):
    """Those of these that are not known to be born will not be."""

    numbers: Annotated[list[Id], Meta(max_length=1 << 16)]


class Importing(Message):
    module: Text


class Prepared(Message):
    """The modules are imported."""


class Spare(Message):
    """A spare process waits at the other end of the descriptor; it has all that the
    zygote was told to import up to that number."""

    prepared: Id


NEWS: Decoder[Message] = Decoder(Born, Unborn, Done, Importing, Prepared, Spare)


class Request(NamedTuple):
    """One process that is asked for."""

    number: int
    life: Life
    fds: list[int]


def main(fd: int, agent: int) -> None:
    """The zygote's process: serve the agent, whose pid is given, at the other end."""
    die_with(agent)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signals.outlive_the_job()
    name_process("moo-zygote")
    signals.report_on_sigusr1("the zygote", at_once=True)  # and the actors; see `live`
    close_all_but({*_OURS, fd})
    _reserve()
    threads.hold()
    default_memory_limit()
    gc.collect()
    gc.freeze()  # a collection in a child must not touch, and so copy, shared pages
    line = Lifeline(socket.socket(fileno=fd))
    try:
        _serve(line, agent)
    except LifelineClosed:
        pass


def _serve(line: Lifeline, agent: int) -> None:
    poller = select.poll()
    poller.register(line, select.POLLIN)
    forks = _Forks(line, agent, starts := Starts(poller))
    while True:
        found = {fd for fd, _ in poller.poll(forks.patience_ms())}
        starts.look(found)
        if line.fileno() not in found:
            if not found and forks.wants_a_spare():
                forks.add_a_spare()
            continue
        births: list[Request] = []
        for data, fds in line.receive_nowait():
            message = ORDERS.decode(data)
            if isinstance(message, Birth):
                births.append(_request(message, fds))
            elif isinstance(message, SpareUsed):
                forks.spare_used()
            elif isinstance(message, Prepare):
                forks.make(births)
                births = []
                _prepare(line, message)
                forks.prepared(message.number)
        forks.make(births)


def _request(birth: Birth, fds: list[int]) -> Request:
    if not fds:
        os._exit(1)  # there are no descriptors left here: the next zygote is asked
    return Request(birth.number, birth.life, fds)


# -- imports ---------------------------------------------------------------


def _prepare(line: Lifeline, message: Prepare) -> None:
    """Import modules once, so that all forks share them; a bad one is reported."""
    if message.path is not None:
        sys.path[:] = map(os.fsdecode, message.path)
        sys.argv = list(map(os.fsdecode, message.argv))
        if message.cwd is not None:
            os.chdir(message.cwd)
    before = _open_now()
    for name in message.modules:
        if name not in sys.modules:
            line.send(Importing(name))
            _import(name)
    _opened.update(_open_now() - before)
    threads.look()
    # One walk: with torch there are 200 000 objects.
    kinds = generators.kinds() | generators.with_subclasses(life.FILES)
    found = [one for one in gc.get_objects() if type(one) in kinds]
    generators.find(found)
    life.find_files(found)
    line.send(Prepared())
    gc.collect()
    gc.freeze()


def _reserve() -> None:
    """Have imports open files above the numbers that an actor's own descriptors get."""
    null = os.open(os.devnull, os.O_RDONLY)
    while os.dup(null) < _LEAST:
        pass


def _open_now() -> set[int]:
    """The descriptors of this process, without the one that lists them."""
    listed = os.listdir("/proc/self/fd")
    return {int(fd) for fd in listed if os.path.lexists(f"/proc/self/fd/{fd}")}


def _import(name: str) -> None:
    import importlib

    tasks = len(os.listdir("/proc/self/task"))
    try:
        with importing():
            importlib.import_module(name)
        more = len(os.listdir("/proc/self/task")) - tasks
        if more > 0:
            print(
                f"mooactor: preloading {name} started {more} threads, which actors do "
                "not have: they are forks. Leave it out of preload= if it hangs or "
                "fails there, and have actors import it themselves",
                file=sys.stderr,
                flush=True,
            )
    except BaseException as error:  # also SystemExit: the module is not our end
        what = f"{type(error).__name__}: {error}" if str(error) else repr(error)
        print(f"mooactor: cannot preload {name}: {what}", file=sys.stderr, flush=True)


# -- forks -----------------------------------------------------------------


class _Forks:
    """The processes that are forked, and the spare one for the agent. There is none
    before the first actor was asked for: then others may be."""

    def __init__(self, line: Lifeline, agent: int, starts: Starts) -> None:
        self._line = line
        self._agent = agent
        self._starts = starts
        self._start_of_spare: int | None = None
        self._prepared = 0
        self._has_made_one = False
        self._lacks_a_spare = False

    def wants_a_spare(self) -> bool:
        """There is none, and it would hold up no start."""
        return self._lacks_a_spare and not self._starts

    def patience_ms(self) -> float | None:
        """How long to wait for a request."""
        return _QUIET_MS if self.wants_a_spare() else self._starts.left_ms()

    def prepared(self, number: int) -> None:
        """More is imported: the agent drops the spare process, which lacks that."""
        self._prepared = number
        self._lacks_a_spare = self._has_made_one
        self._starts.learn_again()

    def make(self, births: list[Request]) -> None:
        """Have a process for each, and say what became of them."""
        if not births:
            return
        try:
            reader, writer = os.pipe()
        except OSError as error:
            for birth in births:
                _tell_unborn(self._line, birth, error)
        else:
            _fork_all(self._line, self._agent, births, writer)
            os.close(writer)
            self._starts.add(reader)
        numbers = [birth.number for birth in births]
        self._line.send(Done(numbers))
        for birth in births:
            for fd in birth.fds:
                os.close(fd)
        self._has_made_one = self._lacks_a_spare = True

    def spare_used(self) -> None:
        """It becomes an actor, and nothing waits to become the next one."""
        self._lacks_a_spare = True
        if self._start_of_spare is not None:
            self._starts.add(self._start_of_spare)
            self._start_of_spare = None

    def add_a_spare(self) -> None:
        """For the next one; not again before that if the system refuses it."""
        # For async actors, and sessions of several hosts: now nobody waits.
        import mooactor.control.unauthenticated
        import mooactor.process.actor.concurrent  # noqa: F401

        gc.freeze()

        self._lacks_a_spare = False
        self._forget_spare()
        try:
            ours, theirs = socket.socketpair()
            with ours, theirs:
                self._fork_spare(ours, theirs)
        except OSError:
            return

    def _forget_spare(self) -> None:
        if self._start_of_spare is not None:
            os.close(self._start_of_spare)
            self._start_of_spare = None

    def _fork_spare(self, ours: socket.socket, theirs: socket.socket) -> None:
        reader, writer = os.pipe()
        self._start_of_spare = reader
        try:
            middle = os.fork()
            if middle == 0:
                ours.close()
                waits = partial(_wait_for_birth, self._agent, os.getpid())
                wait = partial(waits, Lifeline(theirs), writer, self._starts.pages)
                _fork_one(self._line, wait)  # does not return
        finally:
            os.close(writer)
        os.waitpid(middle, 0)
        self._line.send(Spare(self._prepared), [ours.fileno()])


def _fork_one(line: Lifeline, wait: Callable[[], None]) -> None:
    """The process in between: fork the spare one, and exit."""
    try:
        if os.fork() == 0:
            line.close()  # its end is the zygote's end
            wait()  # does not return
    finally:
        os._exit(0)


def _wait_for_birth(
    agent: int, middle: int, line: Lifeline, writer: int, written: list[pages.Run]
) -> None:
    """The spare process: wait on a line of its own to become an actor. It ends if the
    line does."""
    try:
        name_process("moo-spare")
        _await_adoption(agent, middle, line)
        poller = select.poll()
        poller.register(line, select.POLLIN)
        pages.copy(written, until=lambda: poller.poll(0))
        while True:
            poller.poll()
            for data, fds in line.receive_nowait():
                message = ORDERS.decode(data)
                assert isinstance(message, Birth)
                birth = _request(message, fds)
                os.setpgid(0, 0)  # what ends the zygote's group is not for an actor
                line.send(Born(birth.number, os.getpid()))
                line.close()
                _become(birth, agent, middle, writer)  # does not return
    except LifelineClosed:
        pass  # it is not wanted
    finally:
        os._exit(1)


def _fork_all(line: Lifeline, agent: int, births: list[Request], writer: int) -> None:
    try:
        middle = os.fork()
    except OSError as error:
        for birth in births:
            _tell_unborn(line, birth, error)
        return
    if middle == 0:
        _fork_each(line, agent, births, writer)  # does not return
    # Its children become the agent's only when it is gone.
    os.waitpid(middle, 0)


def _tell_unborn(line: Lifeline, birth: Request, error: OSError) -> None:
    line.send(Unborn(birth.number, f"fork: {error}"))


def _fork_each(line: Lifeline, agent: int, births: list[Request], writer: int) -> None:
    """The process in between: fork each actor, report it, and exit."""
    middle = os.getpid()
    try:
        for birth in births:
            try:
                pid = os.fork()
            except OSError as error:
                _tell_unborn(line, birth, error)
                continue
            if pid == 0:
                _become(birth, agent, middle, writer)  # does not return
            line.send(Born(birth.number, pid))
    finally:
        os._exit(0)


def _become(birth: Request, agent: int, middle: int, writer: int) -> None:
    code = 1
    try:
        os.setpgid(0, 0)
        note_pid(writer)
        started = partial(os.close, _keep_only([*birth.fds, writer]))
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python has it
        signals.pass_over()
        name_process(birth.life.label)
        lifeline = socket.socket(fileno=_LINE)
        adopted: Callable[[], None] = partial(_await_adoption, agent, middle, lifeline)
        live(birth.life, lifeline, adopted, started)
        code = 0
    except SystemExit as error:
        code = _exit_code(error)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            # No interpreter teardown: it would run exit handlers of the zygote's.
            os._exit(code)


def _await_adoption(agent: int, middle: int, line: socket.socket | Lifeline) -> None:
    """Wait until this process is the agent's child; from then on it dies with it. If
    its line has ended, it does so at once."""
    # A request to be killed with the parent would be acted on when the process in
    # between exits, so it must wait until that is gone.
    while (parent := os.getppid()) != agent:
        if parent != middle:
            os._exit(1)  # the agent died, and somebody else has adopted this process
        time.sleep(0.0002)
    die_with(agent)
    poller = select.poll()
    poller.register(line, 0)  # no event but its end
    if poller.poll(0):
        os._exit(1)  # this process was given up


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def _keep_only(fds: list[int]) -> int:
    """Close every descriptor but these: the lifeline, stdout, stderr and others, which
    become 3, 1, 2 and 4 and more. Returns the number of the last."""
    null = os.open(os.devnull, os.O_RDONLY)
    high = [_dup_above(fd, len(fds) + _LINE) for fd in (null, *fds)]
    targets = [0, _LINE, 1, 2, *range(_LINE + 1, _LINE + len(fds) - 2)]
    for source, target in zip(high, targets, strict=True):
        os.dup2(source, target, inheritable=target in _OURS)
    close_all_but({*targets, *_opened})
    sys.stdin = open(0)
    sys.stdout = open(1, "w", buffering=1, closefd=False)
    sys.stderr = open(2, "w", buffering=1, closefd=False)
    return int(targets[-1])


def _dup_above(fd: int, least: int) -> int:
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, least)


libc()  # loaded before the first fork, so that children share it
