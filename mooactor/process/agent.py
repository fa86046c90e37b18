# SPDX-License-Identifier: MIT
"""The host's agent: forks actors, watches them, restarts them, knows their names.

One process, one thread, one event loop over plain descriptors: the lifelines of the
driver and of every actor, a pidfd for each actor, their output pipes. It holds no
ZeroMQ and no user object, so it may fork at any time and cannot be held up by what
actors do. When the driver's lifeline ends, it kills what it started and leaves.

Requests arrive as messages ``{"op": …}`` and are served by the method ``_op_…``;
those with an ``rid`` get ``{"ev": "reply", "rid": …}``.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import socket
import sys
import time
from functools import partial

from mooactor.control.keys import actor_of
from mooactor.process import zygote
from mooactor.process.devices import Devices, visible
from mooactor.process.life import live
from mooactor.process.lifeline import Lifeline, Message
from mooactor.process.output import LineReader, Terminal
from mooactor.process.supervised import ExitRecord, Supervised, SupervisedState
from mooactor.process.switchboard import Switchboard

_STOP_GRACE_S = 3.0


class Agent:
    """Everything that one session runs on this host."""

    def __init__(self, driver: Lifeline, config: Message) -> None:
        self._config = config
        self._driver = driver
        self._actors: dict[int, Supervised] = {}
        self._by_lifeline: dict[Lifeline, Supervised] = {}
        self._names: dict[str, int] = {}
        self._lookups: list[tuple[float, str, Lifeline, int]] = []
        self._segments: dict[str, int] = {}
        self._devices = Devices(visible())
        self._terminals = {1: Terminal(1), 2: Terminal(2)}
        self._forward_logs = bool(config["forward_logs"])
        self._oom_kills = _oom_kill_count()
        self._ending = False
        self._board = Switchboard(self)
        self._post, self._reply = self._board.post, self._board.reply
        self._board.watch_line(driver)

    # -- the loop ----------------------------------------------------------

    def run(self) -> None:
        """Serve until the driver is gone or says so."""
        while not (self._ending and not self._alive()):
            self._board.serve(self._latest())
            self._expire_lookups()
            for terminal in self._terminals.values():
                terminal.flush()

    def _latest(self) -> float | None:
        due = [entry[0] for entry in self._lookups]
        if any(terminal.waiting for terminal in self._terminals.values()):
            due.append(time.monotonic() + 0.02)
        return min(due, default=None)

    def _expire_lookups(self) -> None:
        now = time.monotonic()
        for entry in [entry for entry in self._lookups if entry[0] <= now]:
            self._lookups.remove(entry)
            self._reply(entry[2], entry[3], None)

    def _alive(self) -> list[Supervised]:
        return [actor for actor in self._actors.values() if actor.child]

    def handle(self, line: Lifeline, messages: list[Message]) -> None:
        """Serve what came over one lifeline."""
        for message in messages:
            getattr(self, f"_op_{message['op']}")(line, message)

    def line_closed(self, line: Lifeline) -> None:
        """An actor's process has closed its end, or the driver has: that is the end."""
        for actor in self._actors.values():
            actor.forget(line)
        if line is self._driver:
            self._kill_all()
            self._ending = True

    # -- spawning ----------------------------------------------------------

    def _op_spawn(self, line: Lifeline, message: Message) -> None:
        name = message["name"]
        rid = message.get("rid")
        if name is not None:
            holder = self._actors.get(self._names.get(name, 0))
            if holder is not None and not holder.over:
                self._reply(line, rid, None, error="name taken", label=holder.label)
                return
        gpus = self._devices.take(message["id"], message["num_gpus"])
        if gpus is None:
            self._reply(line, rid, None, error="no GPU", free=str(self._devices))
            return
        message["env"] = {**message["env"], **gpus}
        if name is not None:
            self._names[name] = message["id"]
        zygote.prepare([m for m in message["preload"] if m not in sys.modules])
        actor = Supervised(message)
        actor.watchers.add(line)
        self._actors[actor.id] = actor
        self._start(actor)
        self._reply(line, rid, True)
        if name is not None:
            self._answer_lookups(name)

    def _start(self, actor: Supervised) -> None:
        if self._ending or actor.over:
            return
        life = {
            "directory": self._config["directory"],
            "key": self._config["key"],
            "memory_limit": self._config["memory_limit"],
            "network": self._config["network"],
            "actor_id": actor.id,
            "incarnation": actor.incarnation,
            "label": actor.label,
            "name": actor.name,
            "payload": actor.payload,
            "policy": actor.policy,
            "snapshot": actor.snapshot,
            "env": actor.env,
        }
        try:
            child = zygote.fork(actor.label, partial(live, life))
        except OSError as error:
            record = ExitRecord("exception", exception=None, note=f"fork: {error}")
            self._ended(actor, record)
            return
        actor.begin(child)
        prefix = f"({actor.label} pid={child.pid}) ".encode()
        for number, fd in ((1, child.stdout), (2, child.stderr)):
            reader = LineReader(fd, partial(self._emit, number, prefix))
            actor.readers[number] = reader
            self._board.watch(fd, partial(self._read_output, reader))
        self._board.watch(child.pidfd, partial(self._exited, actor))
        assert actor.lifeline is not None
        self._by_lifeline[actor.lifeline] = actor
        self._board.watch_line(actor.lifeline)

    def _emit(self, number: int, prefix: bytes, line: bytes) -> None:
        if not self._forward_logs:
            return
        if self._config["logs_by_lifeline"]:
            text = (prefix + line).decode(errors="replace")
            self._post(self._driver, {"ev": "log", "stream": number, "line": text})
        else:
            self._terminals[number].write(prefix + line + b"\n")

    def _read_output(self, reader: LineReader) -> None:
        if self._terminals[1].full or self._terminals[2].full:
            return
        if not reader.read():
            self._board.unwatch(reader.fd)

    # -- death -------------------------------------------------------------

    def _exited(self, actor: Supervised) -> None:
        child = actor.child
        assert child is not None and actor.lifeline is not None
        if self._board.is_open(actor.lifeline):
            # its last words: ready, failed, stopping
            self._board.read_line(actor.lifeline)
        for reader in actor.readers.values():
            self._board.unwatch(reader.fd)
            reader.finish()
        self._board.unwatch(child.pidfd)
        self._board.close_line(actor.lifeline)
        _, status = os.waitpid(child.pid, 0)
        _kill_group(child.pid)  # what it started dies with it
        self._ended(actor, self._exit_record(actor, status))

    def _exit_record(self, actor: Supervised, status: int) -> ExitRecord:
        stderr = tuple(actor.readers[2].tail) if 2 in actor.readers else ()
        kills = _oom_kill_count()
        killed_for_memory, self._oom_kills = kills > self._oom_kills, kills
        return ExitRecord.of(status, actor, stderr, killed_for_memory)

    def _ended(self, actor: Supervised, record: ExitRecord) -> None:
        if actor.lifeline is not None:
            self._by_lifeline.pop(actor.lifeline, None)
        actor.ended(record)
        delay = None
        if not actor.unwanted and not self._ending:
            delay = actor.budget.take(time.monotonic())
        following = actor.incarnation + 1 if delay is not None else None
        self._tell_watchers(actor, record, following)
        what = "stopped" if actor.unwanted else "died"
        self._tell_monitors(actor, what, record, last=delay is None)
        _remove_inbox(self._config["directory"], actor.process_id)
        if delay is None:
            actor.state = SupervisedState.OVER
            self._devices.give_back(actor.id)
            if actor.name is not None and self._names.get(actor.name) == actor.id:
                del self._names[actor.name]
            for waiting in actor.end_waiters:
                self._reply(*waiting, True)
            actor.end_waiters.clear()
            actor.bury()
            return
        actor.incarnation += 1
        actor.state = SupervisedState.WAITING
        self._board.later(delay, partial(self._start, actor))

    def _tell_watchers(
        self, actor: Supervised, record: ExitRecord, following: int | None
    ) -> None:
        notice = actor.notice(record, following)
        for watcher in list(actor.watchers):
            self._post(watcher, notice)

    def _tell_monitors(
        self,
        actor: Supervised,
        what: str,
        record: ExitRecord | None = None,
        last: bool = False,
    ) -> None:
        event = {**actor.event(what, record), "last": last}
        actor.last_event = event
        for line, monitor in list(actor.monitors):
            self._post(line, {**event, "monitor": monitor})

    # -- what actors say of themselves -------------------------------------

    def _by_line(self, line: Lifeline) -> Supervised | None:
        return self._by_lifeline.get(line)

    def _op_ready(self, line: Lifeline, message: Message) -> None:
        actor = self._by_line(line)
        if actor is not None:
            actor.state = SupervisedState.RUNNING
            self._tell_monitors(actor, "restarted" if actor.incarnation else "started")

    def _op_failed(self, line: Lifeline, message: Message) -> None:
        actor = self._by_line(line)
        if actor is not None:
            actor.failure = message["error"]

    def _op_stopping(self, line: Lifeline, message: Message) -> None:
        actor = self._by_line(line)
        if actor is not None:
            actor.unwanted = actor.unwanted or "stopped"

    def _op_snapshot(self, line: Lifeline, message: Message) -> None:
        actor = self._by_line(line)
        if actor is not None:
            actor.snapshot = message["data"]
            self._reply(line, message.get("rid"), True)

    # -- what anybody may ask ----------------------------------------------

    def _op_kill(self, line: Lifeline, message: Message) -> None:
        actor = self._actors.get(message["id"])
        if actor is None or actor.over:
            self._reply(line, message.get("rid"), False)
            return
        actor.unwanted = actor.unwanted or "killed"
        if "rid" in message:
            actor.end_waiters.append((line, message["rid"]))
        if actor.child:
            _kill_group(actor.child.pid)
        else:  # between two incarnations
            self._ended(actor, ExitRecord("killed"))

    def _op_await_end(self, line: Lifeline, message: Message) -> None:
        actor = self._actors.get(message["id"])
        if actor is None or actor.over:
            self._reply(line, message["rid"], True)
        else:
            actor.end_waiters.append((line, message["rid"]))

    def _op_watch(self, line: Lifeline, message: Message) -> None:
        """Tell `line` of this actor's deaths; at once if it has died before."""
        actor = self._actors.get(actor_of(message["id"]))
        if actor is None:
            return
        actor.watchers.add(line)
        if actor.over or actor.incarnation > message["incarnation"]:
            self._post(line, actor.last_notice())

    def _op_monitor(self, line: Lifeline, message: Message) -> None:
        actor = self._actors.get(message["id"])
        if actor is None:
            self._reply(line, message["rid"], False)
            return
        self._reply(line, message["rid"], True)
        actor.monitors.append((line, message["monitor"]))
        if actor.last_event is not None:
            self._post(line, {**actor.last_event, "monitor": message["monitor"]})

    def _op_unmonitor(self, line: Lifeline, message: Message) -> None:
        actor = self._actors.get(message["id"])
        if actor is not None and (line, message["monitor"]) in actor.monitors:
            actor.monitors.remove((line, message["monitor"]))

    def _op_lookup(self, line: Lifeline, message: Message) -> None:
        deadline = time.monotonic() + message["timeout"]
        self._lookups.append((deadline, message["name"], line, message["rid"]))
        self._answer_lookups(message["name"])

    def _answer_lookups(self, name: str) -> None:
        actor = self._actors.get(self._names.get(name, 0))
        if actor is None:
            return
        for entry in [entry for entry in self._lookups if entry[1] == name]:
            self._lookups.remove(entry)
            self._reply(entry[2], entry[3], actor.handle)

    def _op_segment(self, line: Lifeline, message: Message) -> None:
        """A named piece of shared memory: the same one for all who ask."""
        name, size = message["name"], message["size"]
        if name not in self._segments:
            fd = os.memfd_create(f"mooactor:{name}", os.MFD_CLOEXEC)
            os.ftruncate(fd, size)
            self._segments[name] = fd
        reply = {"ev": "reply", "rid": message["rid"], "value": True, "fd": True}
        self._post(line, reply, self._segments[name])

    def _op_list(self, line: Lifeline, message: Message) -> None:
        self._reply(line, message["rid"], [a.summary() for a in self._actors.values()])

    # -- the end -----------------------------------------------------------

    def _op_shutdown(self, line: Lifeline, message: Message) -> None:
        """Ask every actor to stop; what still runs after the grace is killed."""
        self._ending = True
        grace = message.get("grace", _STOP_GRACE_S)
        for actor in reversed(self._alive()):
            actor.unwanted = actor.unwanted or "stopped"
            if actor.lifeline is not None:
                self._post(actor.lifeline, {"ev": "stop"})
        self._board.later(grace, self._kill_all)

    def _kill_all(self) -> None:
        for actor in self._alive():
            actor.unwanted = actor.unwanted or "stopped"
            assert actor.child is not None
            _kill_group(actor.child.pid)


def _kill_group(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass


def _remove_inbox(directory: str, process_id: int) -> None:
    # The data plane's socket stays: that it refuses is how a dead owner is known.
    try:
        os.unlink(f"{directory}/{process_id:016x}")
    except FileNotFoundError:
        pass


def _oom_kill_count() -> int:
    """How many processes of our control group the kernel has killed for memory."""
    try:
        with open("/proc/self/cgroup") as file:
            path = next(line for line in file if line.startswith("0::"))[3:].strip()
        with open(f"/sys/fs/cgroup{path}/memory.events") as file:
            return sum(int(x.split()[1]) for x in file if x.startswith("oom_kill "))
    except (OSError, StopIteration, ValueError):
        return 0


def main(fd: int) -> None:
    """The agent's process: serve the driver at the other end of `fd`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = Lifeline(socket.socket(fileno=fd))
    config, *backlog = _first_messages(line)
    sys.path[:] = config["path"]
    sys.argv = config["argv"]
    zygote.libc()
    zygote.prepare(config["preload"])
    try:
        agent = Agent(line, config)
        agent.handle(line, backlog)
        agent.run()
    finally:
        line.close()
        shutil.rmtree(config["directory"], ignore_errors=True)


def _first_messages(line: Lifeline) -> list[Message]:
    with selectors.DefaultSelector() as selector:
        selector.register(line, selectors.EVENT_READ)
        while True:
            selector.select()
            messages = [message for message, _ in line.receive_nowait()]
            if messages:
                return messages
