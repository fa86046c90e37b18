# SPDX-License-Identifier: MIT
"""The host's agent: it has actors started, watches, restarts and ends them.

One process, one thread, one event loop over plain descriptors: the lifelines of the
driver, of every actor and of the zygote, and the output pipes. It holds no ZeroMQ and
no user object, imports nothing of the user's and unpickles nothing, so neither actors
nor modules can hold it up. `requests` has its requests, `nursery` the start of
processes.

`lifetimes` has the rules of ends. When the driver ends, the agent kills all that it
started and leaves. It knows of that end by a pidfd, which the driver opened of itself:
a child that the driver has forked holds the lifeline open, but is not that process. The
end of the lifeline means the same, for a driver that executes another program.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Any

from mooactor.control import incarnations
from mooactor.control.lifeline import Lifeline, Message
from mooactor.host.bonds import Bonds
from mooactor.host.devices import Devices, visible
from mooactor.host.eventloop import EventLoop
from mooactor.host.lifetimes import STOP_GRACE_S, Lifetimes, record_of_none
from mooactor.host.logs import Logs
from mooactor.host.names import Names, Segments
from mooactor.host.nursery import Child, Nursery
from mooactor.host.requests import Requests
from mooactor.host.shelf import Shelf
from mooactor.host.supervised import Supervised, SupervisedState
from mooactor.host.supervisors import Supervisors, explained
from mooactor.host.teams import Teams
from mooactor.process import dump, openfiles
from mooactor.process.exits import ExitRecord
from mooactor.process.started import bury
from mooactor.process.system import (
    adopt_orphans,
    children,
    kill_group,
    name_process,
    oom_kills,
)

_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
_PER_SESSION = ("directory", "key", "memory_limit", "network", "seed")


class Agent:
    """Everything that one session runs on this host."""

    def __init__(
        self,
        driver: Lifeline,
        loop: EventLoop,
        nursery: Nursery,
        driver_process: int,
    ) -> None:
        """`driver_process`: its pidfd."""
        self.driver = driver
        self.loop = loop
        self.nursery = nursery
        self.config: Message | None = None
        self.actors: dict[int, Supervised] = {}
        self.living: dict[int, Supervised] = {}  # those that are not over
        self.by_line: dict[Lifeline, Supervised] = {}
        self._by_child: dict[Child, Supervised] = {}
        self._by_pid: dict[int, Supervised] = {}
        self.names = Names(loop.reply)
        self.segments = Segments()
        self.shelf = Shelf()
        self.devices = Devices(visible())
        self.logs = Logs(loop, driver)
        self._oom_kills = oom_kills()
        self.ending = False
        self.lifetimes = Lifetimes(self)
        self.supervisors = Supervisors(self)
        self.teams, self.bonds = Teams(self), Bonds(self)
        self._requests = Requests(self)
        self._watch_children()
        # The loop writes the report for SIGUSR1; the signal wakes it up.
        self._reports: deque[str] = deque()
        dump.install("the agent", self._living, write=self._reports.append)
        loop.watch_line(driver, self._requests)
        loop.watch(driver_process, partial(self._driver_died, driver_process))

    def configure(self, config: Message) -> None:
        """The first message of the driver's."""
        self.config = config
        path, argv = config["path"], config["argv"]
        self.logs.configure(config)
        self.nursery.configure(path, argv, config["preload"])

    # -- the loop ----------------------------------------------------------

    def run(self) -> None:
        """Serve until the driver is gone or ends the session."""
        while not (self.ending and not self.alive()):
            self.loop.serve(self._latest())
            self._requests.after_round()
            self.lifetimes.look()
            self.names.expire()
            self.logs.after_round()
            while self._reports:
                sys.stderr.write(self._reports.popleft())

    def _latest(self) -> float | None:
        if self._requests.waiting:
            return 0.0
        return self.names.due()

    def _living(self) -> Iterator[str]:
        """For SIGUSR1: the actors that are not over."""
        for actor in list(self.living.values()):
            where = "no process" if actor.pid is None else f"process {actor.pid}"
            restarts = f"{actor.incarnation} restarts"
            yield f"{actor.label}: {actor.state.value}, {where}, {restarts}"

    def alive(self) -> list[Supervised]:
        """The actors that have a process now."""
        return [actor for actor in self.living.values() if actor.child]

    def line_closed(self, line: Lifeline) -> None:
        """An actor's process has closed its end, or the driver has: that is the end."""
        self.names.forget(line)
        for actor in self.living.values():
            actor.forget(line)
        if line is self.driver:
            self.ending = True
            self.lifetimes.kill_all()
        elif line in self.by_line:
            line.close()  # which a living process takes for the session's end
            child = self.by_line[line].child
            self.loop.later(STOP_GRACE_S, partial(self._without_line, child))

    def _driver_died(self, driver_process: int) -> None:
        self.loop.unwatch(driver_process)
        self.loop.close_line(self.driver)

    def _without_line(self, child: Child | None) -> None:
        """Its process has closed its lifeline, and still runs."""
        actor = None if child is None else self._by_child.get(child)
        if actor is not None and actor.pid is not None and not actor.ending:
            kill_group(actor.pid)

    # -- spawning ----------------------------------------------------------

    def spawn(self, actor: Supervised, preload: list[str]) -> None:
        """Take a new actor in and have its first process started."""
        self.actors[actor.id] = self.living[actor.id] = actor
        self.supervisors.enroll(actor)
        actor.life["namesakes"] = self.names.give(actor)
        if actor.owner is not None:
            actor.owner.owned.add(actor)
            if actor.owner.ending:  # its last words
                self.lifetimes.kill(actor, "owner")
        if self.ending:
            self.lifetimes.kill(actor, "stopped")
        self.nursery.preload(preload)
        self.supervisors.start(actor)

    def turn_away(self, actor: Supervised, record: ExitRecord) -> None:
        """Take a new actor in as one that has died before it had a process."""
        self.actors[actor.id] = self.living[actor.id] = actor
        self.ended(actor, record)

    def start(self, actor: Supervised) -> None:
        """Start its next process, as soon as nothing runs that it owned."""
        if self.ending or actor.over or actor.child is not None:
            return
        actor.due = not all(owned.quiet for owned in actor.owned)
        if not actor.due:
            self._bear(actor)

    def _bear(self, actor: Supervised, tries: int = 0) -> None:
        assert self.config is not None
        parcels = {"payload": actor.payload, "snapshot": actor.snapshot}
        life = {
            **actor.life,
            **{key: self.config[key] for key in _PER_SESSION},
            "actor_id": actor.id,
            "incarnation": actor.incarnation,
            **{key: parcel and parcel.data for key, parcel in parcels.items()},
            "carried": [key for key, p in parcels.items() if p and p.fds],
        }
        fds = [fd for parcel in parcels.values() if parcel for fd in parcel.fds]
        try:
            child = self.nursery.ask(life, fds, tries)
        except (OSError, TypeError) as error:
            note, full = str(error), getattr(error, "errno", None) in _NO_DESCRIPTOR
            if full:
                note = openfiles.no_room("the session", len(self.living) - 1)
            note = f"{actor.label} cannot be started: {note}"
            self.ended(actor, ExitRecord("exception", note=note, placement=full))
            return
        actor.begin(child)
        self._by_child[child] = self.by_line[child.lifeline] = actor
        self.loop.watch_line(child.lifeline, self._requests)

    def born(self, child: Child) -> None:
        """Its process is there: relay its output from now on."""
        actor = self._by_child[child]
        assert child.pid is not None
        self._by_pid[child.pid] = actor
        prefix = f"({actor.label} pid={child.pid}) ".encode(errors="replace")
        for stream, fd in ((1, child.stdout), (2, child.stderr)):
            actor.readers[stream] = self.logs.begin(stream, fd, prefix)

    def lost(self, child: Child) -> None:
        """The zygote died with the request for this process."""
        actor = self.let_go(child)
        if actor.unwanted:
            self.ended(actor, record_of_none(actor))
        else:
            self._bear(actor, child.tries)

    def failed(self, child: Child, note: str) -> None:
        """The system, or the zygote, has no process for it."""
        actor = self.let_go(child)
        note = f"{actor.label} cannot be started: {note}"
        self.ended(actor, ExitRecord("exception", note=note))

    def let_go(self, child: Child) -> Supervised:
        """Close the agent's ends of a process that never ran, or has ended."""
        actor = self._by_child.pop(child)
        del self.by_line[child.lifeline]
        self.loop.close_line(child.lifeline)
        if actor.readers:
            child.lifeline.close()
            for reader in actor.readers.values():
                self.logs.end(reader)
        else:
            child.close()
        actor.child = None
        return actor

    # -- death -------------------------------------------------------------

    def _watch_children(self) -> None:
        # The signal's number is written to the pipe, which wakes the loop up.
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.loop.watch(read, partial(self._children_died, read))

    def _children_died(self, pipe: int) -> None:
        """Some children are dead: all of them at once, so that none waits in line."""
        while len(_read(pipe)) == 4096:
            pass
        dead = [
            (self._by_pid.pop(pid), status)
            for pid, status in self.nursery.reap()
            if pid in self._by_pid
        ]
        out_of_memory = self._out_of_memory(dead)
        with self.loop.together():
            for actor, status in dead:
                self._exited(actor, status, out_of_memory)

    def dying(self, pid: int) -> None:
        """A child is dead and about to be reaped; until then its pid is its own."""
        actor = self._by_pid.get(pid)
        if actor is not None:
            actor.ending = True
            kill_group(pid)  # all that it started dies with it

    def _exited(self, actor: Supervised, status: int, out_of_memory: bool) -> None:
        child = actor.child
        assert child is not None
        self.loop.read_to_the_end(child.lifeline)  # ready, failed, stopping, spawn
        self.let_go(child)
        stderr = tuple(actor.readers[2].tail)
        actor.readers.clear()
        record = ExitRecord.of(
            status,
            unwanted=actor.unwanted,
            owner=actor.owner_label or "",
            failure=actor.failure,
            stderr=stderr,
            oom=out_of_memory,
        )
        self.ended(actor, explained(actor, record))

    def _out_of_memory(self, dead: list[tuple[Supervised, int]]) -> bool:
        """Whether the kernel has killed for memory since the last look."""
        if all(actor.unwanted or status != signal.SIGKILL for actor, status in dead):
            return False
        before, self._oom_kills = self._oom_kills, oom_kills()
        return self._oom_kills > before

    def ended(self, actor: Supervised, record: ExitRecord) -> None:
        """It has no process now: tell its watchers, and restart it if that is due."""
        actor.ending = False
        sequel = self.supervisors.judge(actor, record)
        following = actor.incarnation + 1 if sequel.back else None
        self._note_incarnation(actor, following)
        notice = actor.notice(record, following)
        for watcher in list(actor.watchers):
            self.loop.post(watcher, notice)
        what = "stopped" if actor.unwanted else "died"
        self._tell_monitors(actor, what, record, last=not sequel.back)
        self._remove_inbox(actor.process_id)
        self.lifetimes.end_owned(
            actor,
            gently=record.kind == "stopped" and not record.signal,
            spare=self.supervisors.hold(actor) if sequel.back else (),
        )
        bonded = self.bonds.bonded(actor)
        if sequel.back:
            actor.incarnation += 1
            actor.state = SupervisedState.WAITING
        else:
            self._bury(actor)
        self.bonds.spread(actor, record, bonded)
        self.supervisors.carry_out(actor, record, sequel)
        self.lifetimes.settle(actor)

    def _bury(self, actor: Supervised) -> None:
        """It will not run again: keep the record of its end, drop its constructor's
        parcel."""
        actor.state = SupervisedState.OVER
        del self.living[actor.id]
        actor.watchers.clear()
        actor.monitors.clear()
        self.devices.give_back(actor.id)
        self.names.free(actor)
        self.bonds.drop(actor)
        self.shelf.drop(actor.payload)
        self.shelf.drop(actor.snapshot)
        actor.payload = actor.snapshot = None
        actor.handle, actor.life = b"", {}
        self.lifetimes.release(actor)

    def _note_incarnation(self, actor: Supervised, following: int | None) -> None:
        assert self.config is not None
        try:
            if following is None:
                incarnations.forget(self.config["directory"], actor.id)
            else:
                incarnations.note(self.config["directory"], actor.id, following)
        except OSError:
            pass  # the directory was removed: no call reaches anybody any more

    def _remove_inbox(self, process_id: int) -> None:
        # The data plane's socket stays: that it refuses is how a dead owner is known.
        assert self.config is not None
        try:
            os.unlink(f"{self.config['directory']}/{process_id:016x}")
        except OSError:
            pass  # it never had one
        bury(self.config["directory"], process_id)

    def _tell_monitors(
        self,
        actor: Supervised,
        what: str,
        record: ExitRecord | None = None,
        last: bool = False,
    ) -> None:
        event: dict[str, Any] = {**actor.event(what, record), "last": last}
        actor.last_event = event
        for line, monitor in list(actor.monitors):
            self.loop.post(line, {**event, "monitor": monitor})

    def is_ready(self, actor: Supervised) -> None:
        """Its constructor has returned; and if it is a supervisor, its children run."""
        starting = actor.state is SupervisedState.STARTING
        if starting and self.supervisors.constructed(actor):
            actor.state = SupervisedState.RUNNING
            self._tell_monitors(actor, "restarted" if actor.incarnation else "started")
            self.supervisors.started(actor)

    def close(self) -> None:
        """Leave nothing: neither the zygote nor processes that actors have left
        behind."""
        self.nursery.close()
        if self.loop.is_open(self.driver):
            self.logs.after_round()
            self.driver.drain(5.0)
        self.driver.close()
        end = time.monotonic() + 1.0
        while (left := children()) and time.monotonic() < end:
            for pid in left:  # whose own children become ours in turn
                kill_group(pid)
                os.waitpid(pid, 0)
        if self.config is not None:
            shutil.rmtree(self.config["directory"], ignore_errors=True)
        self.logs.close()  # last: it may take a while


def _read(pipe: int) -> bytes:
    try:
        return os.read(pipe, 4096)
    except BlockingIOError:
        return b""


def main(fd: int, driver_process: int) -> None:
    """The agent's process: serve the driver at the other end of `fd`, while the process
    of the pidfd lives. Does not return."""
    code = 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    name_process("moo-agent")
    adopt_orphans()
    loop = EventLoop()
    nursery = Nursery(loop)
    nursery.fork_zygote()  # first: it imports while the agent gets ready
    # A terminal may be set to stop background processes that write to it.
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    agent = Agent(Lifeline(socket.socket(fileno=fd)), loop, nursery, driver_process)
    sys.stderr = agent.logs.stderr()
    nursery.family = agent
    try:
        agent.run()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        agent.close()
        os._exit(code)  # the driver waits, and there is nothing left to tidy up
