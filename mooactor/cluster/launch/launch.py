# SPDX-License-Identifier: MIT
"""A launch: a broker, a host agent on each target, and the user's program; they end
together.

Order: the broker is up before the hosts start, and all hosts have joined before the
program starts. The program's end, Ctrl-C, SIGTERM and SIGHUP end everything, within
three seconds. SIGUSR1 and SIGUSR2 go to the program alone. A host that fails is named,
and the run goes on without it. The broker is in this process.

Each program runs under a `starter`, here or on another host, and `mooactor run` holds
the starter's stdin: so nothing outlives a launcher that is killed. The output of
the hosts goes to stderr by whole lines, with their name in front; the user's
program has the launcher's own stdout and stderr. Nothing here blocks: a reader that has
stopped holds up neither the launch nor its end.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from mooactor.cluster.broker import Broker, listening
from mooactor.cluster.launch import ssh, starter
from mooactor.cluster.launch.plan import LaunchError, Plan, Target
from mooactor.control import addresses
from mooactor.control.node import Node
from mooactor.errors import MooError
from mooactor.host.addresses import ports_text
from mooactor.host.eventloop import EventLoop
from mooactor.host.members import FAREWELL
from mooactor.host.output import LineReader, Pipes, Terminal
from mooactor.process import files

if TYPE_CHECKING:
    from mooactor.cluster.launch.job import Job

_HOST_READY = re.compile(rb"mooactor host .+ joined tcp://\S+$")


class Launch:
    """One launch. `run` is called once.

    Args:
      job: what started this command on every host; None: the targets are all.
    """

    def __init__(self, plan: Plan, job: Job | None = None) -> None:
        self._plan, self._job = plan, job
        self._supervisor = Supervisor(plan.grace_s)
        self._node: Node | None = None  # of the broker, which this process has
        self._told = Event()  # to end
        self._hosts: list[Program] = []  # those that have joined

    def run(self) -> int:
        """Run everything; the exit code is the program's, 2 if it never ran, and
        128 + N after signal N before that."""
        files.raise_limit()  # each host takes four
        try:
            return self._supervisor.run(self._run)
        finally:
            self._end_broker()

    def _run(self) -> int:
        plan = self._plan
        others = [target for target in plan.targets if not target.is_here]
        if plan.sync:
            ssh.copy(others, plan.cwd, self._supervisor.wait)
        listen, port = "*" if others else plan.own_address, 0
        if self._job is not None:
            plan.own_address, listen, port = self._job.broker(plan)
        elif plan.address is not None:
            plan.own_address = plan.address
        elif others and len(others) < len(plan.targets):
            plan.own_address = ssh.own_address(others[0])
        self._start_broker(listen, port)
        self._start_hosts()
        if self._job is not None:
            self._gather(self._job)
        return self._run_program()

    # -- the broker ---------------------------------------------------------

    def _start_broker(self, listen: str, port: int) -> None:
        """Of port 0 it takes any, or any of --ports."""
        supervisor, key = self._supervisor, bytes.fromhex(self._plan.key)
        try:
            self._node = node = listening(key, listen, port, self._plan.ports)
        except MooError as error:
            raise LaunchError(f"the broker did not start: {error}") from None
        self._plan.port = addresses.parse(node.address)[1]
        self._broker = Broker(node, supervisor.loop.later, self._log, self._told.set)
        with contextlib.suppress(OSError):
            node.tell_fingerprint(
                lambda host, other: self._log(
                    f"a program on {host} holds another key, {other}, and is not let in"
                )
            )
        supervisor.loop.serve_node(node)
        supervisor.mind = self._mind

    def _log(self, line: str) -> None:
        self._supervisor.print(f"[broker] {line}".encode(errors="replace"))

    def _end_broker(self) -> None:
        self._supervisor.loop.leave_node()
        if self._node is not None:
            for channel in self._node.channels():
                channel.close(FAREWELL)
            self._node.close()
            self._node = None

    def _mind(self) -> None:
        for host in [host for host in self._hosts if host.code is not None]:
            self._hosts.remove(host)
            why = host.failure if host.code else "it was told to end"
            self._supervisor.say(f"host {host.target.name} has ended: {why}")
        if self._told.is_set() and self._node is not None:
            self._end_broker()
            self._supervisor.say(
                "the broker has ended (it was told to end): no host joins any more"
            )

    # -- the hosts ----------------------------------------------------------

    def _start_hosts(self) -> None:
        """Start all at the same time, and wait until enough of them have joined.

        Raises:
          LaunchError: too few have.
        """
        plan, supervisor = self._plan, self._supervisor
        started = [start_host(supervisor, plan, target) for target in plan.targets]
        # In a job this is one host of many, and it must be there: the program runs on
        # it.
        enough = min(plan.min_hosts or len(started), len(started))

        def settled() -> bool:
            failed = sum(p.code is not None for p in started)
            return all(p.settled for p in started) or failed > len(started) - enough

        supervisor.wait(settled, plan.patience_s)
        self._hosts = [p for p in started if p.ready and p.code is None]
        missing = [p for p in started if p not in self._hosts]
        reasons = [why_not_joined(plan, program) for program in missing]
        if len(self._hosts) < enough:
            # Those that were still on their way are not to blame.
            blamed = [r for p, r in zip(missing, reasons) if p.code is not None]
            raise LaunchError("; ".join(blamed or reasons))
        for program, reason in zip(missing, reasons, strict=True):
            program.end(0.0)
            supervisor.say(f"{reason}; the run goes on without it")

    def _gather(self, job: Job) -> None:
        """Wait until the hosts of the other ranks have joined.

        Raises:
          LaunchError: too few have.
        """
        plan = self._plan
        job.publish(plan)
        wanted, members = plan.min_hosts or job.rank.hosts, self._broker.registry.latest

        def joined() -> set[str]:
            return {each.name for each in members() if each.kind == "host"}

        enough = self._supervisor.wait(lambda: len(joined()) >= wanted, plan.patience_s)
        if not enough:
            raise LaunchError(
                f"{len(joined())} of {wanted} hosts have joined in "
                f"{plan.patience_s:.0f} s ({', '.join(sorted(joined()))}): look at "
                "the output of the others, or say --min-hosts N"
            )

    # -- the program --------------------------------------------------------

    def _run_program(self) -> int:
        plan, supervisor = self._plan, self._supervisor
        supervisor.wait(lambda: True)  # a signal of before is not for it
        if not self._hosts:
            raise LaunchError("no host is left to run the program on: see above why")
        target = self._hosts[0].target
        # The host of that name takes the program's actors there.
        values = {"MOOACTOR_HOST_NAME": target.name}
        if plan.ports:
            values["MOOACTOR_PORTS"] = ports_text(plan.ports)
        order = plan.order(target, (), plan.program, **values)
        order["script"] = plan.script
        program = supervisor.start(target, plan.python, order)
        code = supervisor.follow(program)
        if code == ssh.LOST and not target.is_here and not supervisor.interrupted:
            supervisor.say(
                f"what became of the program on host {target.name} is not known: ssh "
                f"has lost the connection, or it ended with exit code {code} of its own"
            )
        return code


def start_host(supervisor: Supervisor, plan: Plan, target: Target) -> Program:
    """Start ``mooactor host`` there, to join the broker."""
    words = ["host", "--join", "{BROKER}", "--name", target.name]
    order = plan.order(
        target,
        plan.command(*words, *target.offers, *plan.offers),
        MOOACTOR_HOST_NAME=target.name,
    )
    return supervisor.start(target, plan.python, order, label=target.name)


def why_not_joined(plan: Plan, program: Program) -> str:
    """Why a host has not."""
    target = program.target
    if program.code is not None:
        return f"host {target.name} did not start: {program.failure}"
    works = "" if target.is_here else f"{ssh.trial(target)} works, and "
    return (
        f"host {target.name} has not joined in {plan.patience_s:.0f} s; look whether "
        f"{works}a firewall keeps it from this machine (--ports, --address), or allow "
        "more time with --patience"
    )


# -- the programs, and the one loop that minds them --------------------------------

_SOURCE = Path(starter.__file__).read_bytes()
_HEAD = b"%d\n%s" % (len(_SOURCE), _SOURCE)
_LOOK_S = 0.1  # between two looks at what a wait is for, if nothing happens
_BEAT_S = 10.0  # between lines to a starter, whose patience is `ssh.SILENCE_S`
_ANSWER_S = 0.5  # for word of its end; an ssh whose network is gone brings none
# After a signal: what the program has, then all the rest. Three seconds are promised.
FORCE_S = 0.3
_END_S, _END_AFTER_GRACE_S = 2.7, 1.5
_KILL_S = 0.2
# One event can come as several signals: `timeout` signals its child and then its group,
# and when a terminal is closed, SIGHUP comes from the shell and then from the kernel.
_SAME_EVENT_S = 0.3
# They end the launch, and ask the program to end.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# They are for the program alone, which goes on: the notice of a batch system, such as
# Slurm's --signal=USR1@90.
_NOTICES = (signal.SIGUSR1, signal.SIGUSR2)
_FAILED = 2  # the exit code of a launch that never ran the program


class Interrupted(Exception):
    """A signal came before the program ran."""


class Program:
    """One that a `starter` runs: started at once, and minded by the loop.

    The output of a host is read for the line that says that it has joined, and printed
    by lines. The program has the launcher's outputs, and on this machine its stdin.

    Args:
      label: stands before its lines; empty: it is the user's own.

    Raises:
      LaunchError: it cannot be started from here.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        target: Target,
        python: str,
        order: dict[str, Any],
        *,
        label: str = "",
    ) -> None:
        self.target = target
        self.code: int | None = None  # once it has ended and is read
        self.ready = False  # it has joined the broker
        self._supervisor, self._loop = supervisor, supervisor.loop
        self._label, self._python = label, python
        is_users = not label and target.is_here
        #: The terminal sends Ctrl-C to the program itself.
        self.has_terminal = is_users and _in_foreground()
        stdin = os.dup(0) if is_users else 0
        try:
            self._process = subprocess.Popen(
                ssh.words(target, python),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if label else None,
                stderr=subprocess.STDOUT if label else None,
                process_group=None if self.has_terminal else 0,
                pass_fds=[stdin] if stdin else (),
            )
        except OSError as error:
            raise LaunchError(
                f"host {target.name}: {error.filename} cannot be run "
                f"({error.strerror}): name another interpreter with --python"
            ) from None
        finally:
            if stdin:
                os.close(stdin)
        self._reader: LineReader | None = None
        if self._process.stdout is not None:
            pipe = os.dup(self._process.stdout.fileno())
            self._process.stdout.close()
            os.set_blocking(pipe, False)
            self._reader = Pipes(self._loop, lambda: True).begin(pipe, self._lines)
        self._pidfd = os.pidfd_open(self._process.pid)
        self._loop.watch(self._pidfd, self._ended)
        assert self._process.stdin is not None
        self._stdin = self._process.stdin
        os.set_blocking(self._stdin.fileno(), False)
        silence_s = 0 if target.is_here else ssh.SILENCE_S
        order |= {"stdin": stdin, "foreground": self.has_terminal}
        order["silence_s"] = silence_s
        self._unsent = _HEAD + json.dumps(order).encode() + b"\n"
        self._send()
        self._beat()

    @property
    def settled(self) -> bool:
        """Whether it is ready, or never will be."""
        return self.ready or self.code is not None

    @property
    def failure(self) -> str:
        """Why it failed, without the host's name, and with the next step."""
        lines = self._reader.tail if self._reader is not None else ()
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return ssh.failure(self.target, self._python, self.code or 0, last)

    def _lines(self, lines: list[bytes]) -> None:
        for line in lines:
            # A shell's greeting before it may have no end of line.
            if not self.ready and (found := _HOST_READY.search(line)):
                self.ready, line = True, line[: found.start()]
            if line and starter.FAILED.encode() not in line:
                self._supervisor.print(f"[{self._label}] ".encode() + line)

    def signal(self, number: int) -> None:
        """Have it signalled, on its host. A Ctrl-C of the terminal that it has reaches
        it without this."""
        if not (number == signal.SIGINT and self.has_terminal):
            self._tell({"signal": int(number)})

    def end(self, grace_s: float) -> None:
        """Have its starter end it, and kill it after the grace. Nobody waits much
        longer for the starter."""
        self._tell({"grace_s": grace_s})
        self._hang_up()
        self._loop.later(grace_s + _ANSWER_S, self.kill)

    def kill(self) -> None:
        """End the starter or the ssh to it; the other end learns it from its stdin."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                if self.has_terminal:  # its group is the launcher's
                    self._process.kill()
                else:
                    os.killpg(self._process.pid, signal.SIGKILL)

    def _beat(self) -> None:
        if not self._stdin.closed:
            self._loop.later(_BEAT_S, self._beat)
            if not self._unsent:
                self._tell({})

    def _tell(self, message: dict[str, Any]) -> None:
        if self._stdin.closed:
            return
        self._unsent += json.dumps(message).encode() + b"\n"
        self._send()

    def _send(self) -> None:
        fd = self._stdin.fileno()
        self._loop.unwatch(fd)
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(fd, self._unsent) :]
        except BlockingIOError:
            self._loop.watch_room(fd, self._send)
        except OSError:
            self._unsent = b""  # it has ended, which its pidfd tells

    def _hang_up(self) -> None:
        if not self._stdin.closed:
            self._loop.unwatch(self._stdin.fileno())
            with contextlib.suppress(OSError):
                self._stdin.close()

    def _ended(self) -> None:
        self._loop.unwatch(self._pidfd)
        os.close(self._pidfd)
        code = self._process.wait()
        if self._reader is not None:
            self._reader.finish()
        self._hang_up()
        self.code = code if code >= 0 else 128 - code


class Supervisor:
    """Starts programs, waits, and ends them all together.

    Invariant: after a signal that no program could act on no wait returns.

    Args:
      grace_s: the time that the program has after a signal that ends the launch.
    """

    def __init__(self, grace_s: float) -> None:
        self.loop = EventLoop()
        self.mind: Callable[[], None] = lambda: None  # is called in each round
        self.main: Program | None = None  # the launch lives as long as it does
        self._grace_s, self._passes_on = grace_s, True
        self._programs: list[Program] = []  # all that were ever started
        self._terminal = Terminal(2, self.loop)
        self._arrived: list[int] = []  # signals that were not acted on
        self._events: list[int] = []  # a number for each that ends the launch
        self._first_at: float | None = None  # of these

    def run(self, body: Callable[[], int]) -> int:
        """Do all of it, the last thing that this process does. The exit code is what
        `body` returns, 2 if that fails before `main` runs, and 128 + N after signal N
        before that."""
        end_waking = self.loop.wake_on_signals()
        for number in (*_ENDING, *_NOTICES):
            # One that is ignored, as under nohup, stays so.
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, lambda number, _: self._arrived.append(number))
        try:
            return body()
        except LaunchError as error:
            self.say(str(error))
            return _FAILED
        except Interrupted:
            return 128 + self._events[0]
        finally:
            self._end()
            end_waking()
            for number in (*_ENDING, *_NOTICES):
                signal.signal(number, signal.SIG_IGN)  # the exit code is known
            self._terminal.drain(FORCE_S, time.monotonic() + FORCE_S)

    @property
    def interrupted(self) -> bool:
        return bool(self._events)

    def print(self, line: bytes) -> None:
        """A line on stderr."""
        self._terminal.add(line + b"\n")

    def say(self, text: str) -> None:
        """Print a line of the launcher's own."""
        self.print(f"mooactor run: {text}".encode(errors="replace"))

    def start(self, *words: Any, **more: Any) -> Program:
        """Start a `Program`."""
        self._programs.append(Program(self, *words, **more))
        return self._programs[-1]

    def wait(
        self,
        until: Callable[[], object],
        patience_s: float | None = None,
        *,
        told: bool = False,
    ) -> bool:
        """Serve the loop until the condition holds, which is looked at after each
        event, and unless one of these tells of it, every `_LOOK_S`; False: that took
        too long.

        Raises:
          Interrupted: a signal came, and no program runs yet that could act on it.
        """
        latest = None if patience_s is None else time.monotonic() + patience_s
        while True:
            self._act_on_signals()
            if self._events and self.main is None:
                raise Interrupted
            if until():
                return True
            if latest is not None and time.monotonic() >= latest:
                return False
            self.loop.serve(latest if told else time.monotonic() + _LOOK_S)
            self.mind()

    def follow(self, program: Program, *, passes_on: bool = True) -> int:
        """Wait for the end of a program that acts on signals, if `passes_on`; its exit
        code."""
        self.main, self._passes_on = program, passes_on
        self.wait(lambda: program.code is not None, told=True)
        assert program.code is not None
        return program.code

    def _act_on_signals(self) -> None:
        while self._arrived:
            number, now = self._arrived.pop(0), time.monotonic()
            if number in _NOTICES:
                if self.main is not None and self._passes_on:
                    self.main.signal(number)
            elif self._first_at is None or now >= self._first_at + _SAME_EVENT_S:
                self._first_at = self._first_at or now
                self._events.append(number)
                if self.main is not None:
                    self._end_main(self.main, number)

    def _end_main(self, main: Program, number: int) -> None:
        if len(self._events) > 1:
            main.end(0.0)
        else:
            if self._passes_on:
                main.signal(number)
            self.loop.later(self._grace_s, partial(main.end, FORCE_S))

    def _end(self) -> None:
        """End what still runs."""
        self.mind = lambda: None
        end_by = time.monotonic() + _END_S
        if self._first_at is not None:
            graced = self._first_at + self._grace_s + _END_AFTER_GRACE_S
            end_by = min(end_by, graced)
        programs = [p for p in self._programs if p.code is None]
        for program in programs:
            program.end(max(0.1, end_by - time.monotonic() - FORCE_S))
        self._let_end(programs, end_by)
        for program in programs:
            program.kill()
        self._let_end(programs, time.monotonic() + _KILL_S)

    def _let_end(self, programs: list[Program], latest: float) -> None:
        while any(p.code is None for p in programs) and time.monotonic() < latest:
            self.loop.serve(latest)


def _in_foreground() -> bool:
    """Whether this process has a terminal as stdin, and its Ctrl-C."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False
