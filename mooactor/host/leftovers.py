# SPDX-License-Identifier: MIT
"""The processes that a session's actors have started by other means, on one host.

`subprocess`, `os.fork` and libraries start them. Those in an actor's process group are
killed with it; these are all others, which end with the session. The agent serves
several sessions, and adopts the orphans of all. Two things tell whose they are:

* The session's zygote is started with a mark in its environment; so is the agent of a
  driver, whose zygote is its fork. The kernel shows the environment that a program was
  started with: a fork shows its parent's, and a program that is executed inherits it.
* A program may be given another environment, or write over its own. Such descendants
  of an actor are noted just before that is asked to stop, or killed: an orphan has lost
  its place in the tree. One whose actor, or parent, ends by itself is not known.

An agent that is killed cannot look. Its janitor does, and finds those with a mark: each
begins with the agent's.

Invariants:

* Only descendants of the agent are killed, and of these only what has the mark, was
  noted, or is a descendant of such a process. The janitor kills what has the mark.
* A process is known by its pid and the time of its start: another one that gets the
  same pid is spared.
* The agent never waits for them; it looks again after a while. What another user runs
  may be unreadable, and is nobody's then.

The janitor is a process beside each agent that waits for nothing but the agent's end.
An agent that is asked to end tidies up itself, and its janitor with the rest. If it is
killed, the kernel ends its actors, for they hold its lifelines, but not what these had
started by other means, and no directory goes. The janitor kills the former, by their
mark, and removes the latter.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass, field

import msgspec

from mooactor.host import leftovers
from mooactor.host.eventloop import EventLoop
from mooactor.process import files
from mooactor.process.system import children, close_all_but, name_process

VARIABLE = "MOOACTOR_SESSION_MARK"

_NAME = f"{VARIABLE}=".encode()
#: The mark of this process, if it is an agent of several sessions, and its janitor's.
AGENT = os.urandom(8).hex()
_FIRST_S, _MORE_LOOKS = 0.02, 6  # each pause is twice the one before: 1.3 s together


@dataclass(frozen=True)
class _Process:
    pid: int
    started: int  # in clock ticks since boot
    parent: int = field(compare=False)
    group: int = field(compare=False)
    dead: bool = field(compare=False)

    @classmethod
    def of(cls, pid: int) -> _Process | None:
        """None: it is gone."""
        try:
            with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
                words = file.readall().rpartition(b")")[2].split()
        except OSError:
            return None
        parent, group, started = int(words[1]), int(words[2]), int(words[19])
        return cls(pid, started, parent, group, dead=words[0] in (b"Z", b"X"))

    def environment(self) -> list[bytes]:
        """What its program was started with. One empty entry: nothing, or it is dead or
        within an execve. No entry: it is gone, or another user's."""
        try:
            with open(f"/proc/{self.pid}/environ", "rb", buffering=0) as file:
                return file.readall().split(b"\0")
        except OSError:
            return []

    def lives(self) -> bool:
        now = _Process.of(self.pid)
        return now == self and not now.dead

    def kill(self) -> None:
        """Kill it and, if it leads one, its group: that may be about to fork."""
        with contextlib.suppress(OSError):  # it is gone, or another user's
            pidfd = os.pidfd_open(self.pid)
            try:
                if self.lives():
                    if self.group == self.pid:
                        os.killpg(self.group, signal.SIGKILL)
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            finally:
                os.close(pidfd)


def _children(pid: int) -> list[_Process]:
    found = map(_Process.of, children(pid))
    # One that died meanwhile may have left its pid to a stranger.
    return [process for process in found if process and process.parent == pid]


def kill_all(mark: str) -> None:
    """The agent was killed: kill what its sessions' actors had started, wherever it is
    in the tree. In the janitor, which may have the mark itself."""
    start = _NAME + mark.encode()
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        process = _Process.of(pid) if pid != os.getpid() else None
        if process and any(x.startswith(start) for x in process.environment()):
            process.kill()


class _Seen(msgspec.Struct):
    found: set[_Process] = set()
    unsure: bool = False  # of one whose environment could not be seen just now


class Leftovers:
    """Those of one session."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        # Not the session's own name: a session that returns to this host is another
        # one, and its processes are not to be taken for these.
        self.environment = {VARIABLE: AGENT + os.urandom(8).hex()}  # for its zygote
        self._mark = _NAME + self.environment[VARIABLE].encode()
        self._noted: set[_Process] = set()

    def note(self, actor: int) -> None:
        """A process of an actor's is about to end: remember what descends from it and
        could not be known for the session's afterwards."""
        self._noted = {process for process in self._noted if process.lives()}
        todo = _children(actor)
        for process in todo:  # which grows meanwhile
            if process.group != actor and self._mark not in process.environment():
                self._noted.add(process)
            todo += _children(process.pid)

    def end(self, looks: int = _MORE_LOOKS) -> None:
        """The session's own processes are killed: kill these, and look again for those
        that were started meanwhile."""
        seen = self._look()
        for process in seen.found:
            process.kill()
        self._noted |= seen.found
        if looks and (seen.found or seen.unsure):
            pause = _FIRST_S * 2 ** (_MORE_LOOKS - looks)
            self._loop.later(pause, lambda: self.end(looks - 1))

    def _look(self) -> _Seen:
        """Find them, from the agent downward."""
        seen = _Seen()
        todo = [(child, False) for child in _children(os.getpid())]
        while todo:
            process, ours = todo.pop()
            ours = ours or process in self._noted
            if not ours and not process.dead:
                variables = process.environment()
                marks = [x for x in variables if x.startswith(_NAME)]
                if marks and self._mark not in marks:
                    continue  # another session's, with all that descends from it
                ours = bool(marks)
                seen.unsure |= variables == [b""]
            if ours and not process.dead:
                seen.found.add(process)
            todo += [(child, ours) for child in _children(process.pid)]
        return seen


_NOT_FOR_IT = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,  # all of a name may be asked for a report
    signal.SIGUSR2,
)
_DYING_S, _LOOKS = 0.1, 6  # processes that were killed may start others, hold files


def start(mark: str) -> int:
    """Fork the janitor; the descriptor whose end it waits for. To be called before this
    process has threads. `mark` begins those of the sessions here."""
    read, write = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid:
        os.close(read)
        return write
    code = 1
    try:
        _tidy_up_after(read, mark)
        code = 0
    finally:
        os._exit(code)


def _tidy_up_after(read: int, mark: str) -> None:
    os.setsid()  # a Ctrl-C, or a kill of the agent's group, is not meant for it
    for number in _NOT_FOR_IT:
        signal.signal(number, signal.SIG_IGN)
    name_process("moo-janitor")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    close_all_but({0, 1, 2, read})
    os.read(read, 1)  # the agent's end
    for _ in range(_LOOKS):
        leftovers.kill_all(mark)
        files.remove_abandoned_directories()
        time.sleep(_DYING_S)
