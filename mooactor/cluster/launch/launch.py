# SPDX-License-Identifier: MIT
"""A launch: a broker, a host agent on each target, and the user's program; they end
together.

Order: the broker is up before the hosts start, and all hosts have joined before the
program starts. The program's end, Ctrl-C, SIGTERM and SIGHUP end everything, within
three seconds. SIGUSR1 and SIGUSR2 go to the program alone. If the launcher is killed,
every starter sees the end of its stdin and ends what it started.

What the program leaves behind ends, too, in whatever session it is. On another host the
program's starter adopts and kills it. Here the launcher does, last, with the orphans of
all that it has started.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from typing import Any

from mooactor.cluster.launch import ssh, starter, sync
from mooactor.cluster.launch.addresses import bracketed
from mooactor.cluster.launch.hosts import Hosts
from mooactor.cluster.launch.output import Output
from mooactor.cluster.launch.plan import Plan, command
from mooactor.cluster.launch.program import Program
from mooactor.cluster.launch.script import LocalScript
from mooactor.cluster.launch.signals import NOTICES, Signals
from mooactor.cluster.launch.targets import HERE, LaunchError, Target
from mooactor.host.addresses import ports_text
from mooactor.host.eventloop import EventLoop
from mooactor.process import files

BROKER_READY = r"mooactor broker at tcp://(?P<host>\S+):(?P<port>\d+)"
_FAILED = 2  # the exit code of a launch that never ran the program
_BROKER_PATIENCE_S = 30.0
_BROKER_LATE = (
    f"it was not ready in {_BROKER_PATIENCE_S:.0f} s; look whether this machine is "
    "overloaded, and try again"
)
# After a signal: what the program has, then all the rest. Three seconds are promised.
_FORCE_S = 0.3
_END_S, _END_AFTER_GRACE_S = 2.7, 1.5
_KILL_S = 0.2
_REAP_S = 1.0  # between looks for orphans that have ended
# One event can come as several signals: `timeout` signals its child and then its group,
# and when a terminal is closed, SIGHUP comes from the shell and then from the kernel.
_SAME_EVENT_S = 0.3


class Interrupted(Exception):
    """A signal came before the program ran."""


class Launch:
    """One launch. `run` is called once."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.loop = EventLoop()
        self.output = Output(self.loop, 2)
        self.hosts = Hosts(plan, self.loop, self.output, self.start_program)
        self._programs: list[Program] = []  # all that were ever started
        self.broker: Program | None = None
        self.script: LocalScript | Program | None = None
        self._interrupted: list[int] = []  # a number for each event
        self._interrupted_at: float | None = None  # the first of them
        self._own_address = "127.0.0.1"
        self._port: int | None = None  # of the broker, once it was up
        self._strangers = starter.children()  # of a shell that has become this process

    def run(self) -> int:
        """Run everything; the exit code is the program's, 2 if it never ran, and
        128 + N after signal N before that."""
        files.raise_limit()  # each host takes four
        try:
            with Signals(self.loop, self._on_signal):
                try:
                    return self._run()
                except LaunchError as error:
                    self.output.say(str(error))
                    return _FAILED
                except Interrupted:
                    return 128 + self._interrupted[0]
                finally:
                    self._end()
        finally:
            self.output.close()

    def _run(self) -> int:
        if self.plan.sync:
            sync.copy(self.plan, self.wait)
        self._own_address = self._address_here()
        port = self._port = self._start_broker()
        self.hosts.start(self._own_address, port, self.wait)
        self.gather(port)
        return self._run_script()

    def gather(self, port: int) -> None:
        """Wait for hosts that this launch does not start itself."""

    def wait(self, until: Callable[[], bool], latest: float | None = None) -> bool:
        """Serve the loop until the condition holds; False: that took too long.

        Invariant: it never returns after a signal that no program could act on, also if
        the condition came true in the same round of the loop.

        Raises:
          Interrupted: a signal came, and no program runs yet that could act on it.
        """
        while True:
            if self._interrupted and self.script is None:
                raise Interrupted
            if until():
                return True
            if latest is not None and time.monotonic() >= latest:
                return False
            self.loop.serve(latest)
            self._mind_broker()

    def _on_signal(self, number: int, typed: bool) -> None:
        if number in NOTICES:
            if self.script is not None:
                self.script.signal(number, typed)
            return
        now = time.monotonic()
        if self._interrupted_at is None:
            self._interrupted_at = now
        elif now < self._interrupted_at + _SAME_EVENT_S:
            return
        self._interrupted.append(number)
        if self.script is None:
            return
        if len(self._interrupted) == 1:
            self.script.signal(number, typed)
            self.loop.later(self.plan.grace_s, lambda: self._end_script(_FORCE_S))
        else:
            self._end_script(0.0)

    def _end_script(self, grace_s: float) -> None:
        if self.script is not None and self.script.code is None:
            self.script.end(grace_s)

    # -- the broker ---------------------------------------------------------

    def _address_here(self) -> str:
        """This machine's address, as the hosts know it."""
        if self.plan.address is not None:
            return bracketed(self.plan.address)
        others = [target for target in self.plan.targets if not target.is_here]
        if not others or not any(target.is_here for target in self.plan.targets):
            return "127.0.0.1"  # only this machine's own programs use it
        return bracketed(ssh.own_address(others[0]))

    def _listen(self) -> str:
        """Where the broker listens: for this machine alone, or for all."""
        alone = all(target.is_here for target in self.plan.targets)
        return ("127.0.0.1" if alone else "*") + ("" if self.plan.ports else ":0")

    def _start_broker(self) -> int:
        """Start it, and return its port once it is up."""
        broker = self._launch_broker(self._listen())
        latest = time.monotonic() + _BROKER_PATIENCE_S
        done = self.wait(lambda: bool(broker.ready) or broker.code is not None, latest)
        if broker.ready is None:
            why = broker.failure_to_start if done else _BROKER_LATE
            raise LaunchError(f"the broker did not start: {why}")
        return int(broker.ready["port"])

    def _launch_broker(self, listen: str) -> Program:
        # One whose port is given already needs no other.
        ports = [] if re.search(r":\d+$", listen) else self.plan.port_words
        words = command("broker", "--listen", listen, *ports)
        order = self.plan.order(words, self._own_address)
        order.update(cwd="/", path=self.plan.own_path)
        self.broker = self.start_program(
            HERE, sys.executable, order, label="broker", ready=BROKER_READY
        )
        return self.broker

    def start_program(
        self, target: Target, python: str, *words: Any, **more: Any
    ) -> Program:
        program = Program(self.loop, self.output, target, python, *words, **more)
        self._programs.append(program)
        return program

    def _mind_broker(self) -> None:
        """A broker that was killed is started again: its state is soft. One that ended
        with 0 was told to, and stays away."""
        broker = self.broker
        if self._port is None or broker is None or broker.code is None:
            return
        if broker.code == 0:
            self.broker = None
            self.output.say("the broker was told to end: no host joins any more")
            return
        if broker.ready is None:
            self.broker = None
            self.output.say(f"no broker starts again ({broker.failure}): no host joins")
            return
        self.output.say(f"the broker ended ({broker.failure}); another starts")
        address = re.sub(r":\d+$", "", self._listen())
        self._launch_broker(f"{address}:{self._port}")

    # -- the program --------------------------------------------------------

    def _run_script(self) -> int:
        # A signal of before the program is not for it, and a Ctrl-C did not reach it.
        self.loop.serve(time.monotonic())
        self.wait(lambda: True)
        first = self.hosts.running[0].target
        plan = self.plan
        # The host of that name takes the program's actors here.
        environment = {"MOOACTOR_HOST_NAME": first.name}
        if plan.ports:
            environment["MOOACTOR_PORTS"] = ports_text(plan.ports)
        if first.is_here:
            environment["MOOACTOR_ADDRESS"] = f"tcp://{self._own_address}:{self._port}"
            self.script = self._local_script(environment)
        else:
            environment["MOOACTOR_ADDRESS"] = f"tcp://{{ADDRESS}}:{self._port}"
            address = plan.address and bracketed(plan.address)
            words = ["{PYTHON}"]
            order = plan.order(words, address, plan.program, **environment)
            order.update(script=plan.script, host=first.name)
            self.script = self.start_program(
                first, plan.interpreter, order, label=first.name, inherits=True
            )
        while self.script.code is None:
            self.loop.serve()
            self.hosts.mind()
            self._mind_broker()
        why = self.script.loss if isinstance(self.script, Program) else None
        if why is not None and not self._interrupted:
            known = f"what became of the program on host {first.name} is not known"
            self.output.say(f"{known}: {why}")
        return self.script.code

    def _local_script(self, environment: dict[str, str]) -> LocalScript:
        plan = self.plan
        environment["MOOACTOR_KEY_FILE"] = starter.key_file(plan.key)
        path = [*plan.path, *filter(None, [plan.variables.get("PYTHONPATH")])]
        if path:
            environment["PYTHONPATH"] = ":".join(path)
        environment = {**plan.variables, **environment}
        words = [plan.interpreter, *plan.program]
        try:
            script = LocalScript(self.loop, words, environment, plan.cwd)
        except OSError as error:
            raise LaunchError(
                f"the program cannot be started with {plan.interpreter} in {plan.cwd} "
                f"({error.strerror}): check --python and --cwd"
            ) from None
        self.loop.later(_REAP_S, self._reap_orphans)
        return script

    def _reap_orphans(self) -> None:
        starter.reap_orphans(self._own_pids(), wait=False)
        self.loop.later(_REAP_S, self._reap_orphans)

    def _own_pids(self) -> set[int]:
        """The children that the launch waits for itself."""
        pids = {program.pid for program in self._programs}
        if self.script is not None:
            pids.add(self.script.pid)
        return {pid for pid in pids if pid is not None}

    # -- the end ------------------------------------------------------------

    def _end(self) -> None:
        """End what still runs: the hosts, then the broker, which they take leave of."""
        self.hosts.over = True
        end_by = time.monotonic() + _END_S
        if self._interrupted_at is not None:
            graced = self._interrupted_at + self.plan.grace_s + _END_AFTER_GRACE_S
            end_by = min(end_by, graced)
        programs = [p for p in self._programs if p.code is None]
        hosts = [p for p in programs if p is not self.broker]
        for part in (hosts, programs):
            left = end_by - time.monotonic()
            for program in part:
                program.end(max(0.1, left - _FORCE_S))
            latest = end_by if part is programs else end_by - _FORCE_S
            while _running(part) and time.monotonic() < latest:
                self.loop.serve(latest)
        for program in programs:
            program.kill()
        latest = time.monotonic() + _KILL_S
        while _running(programs) and time.monotonic() < latest:
            self.loop.serve(latest)
        if isinstance(self.script, LocalScript):
            starter.kill_orphans(self._own_pids().union(self._strangers))


def _running(programs: list[Program]) -> bool:
    return any(program.code is None for program in programs)
