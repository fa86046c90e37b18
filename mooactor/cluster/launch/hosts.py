# SPDX-License-Identifier: MIT
"""The host agents of a launch: their start, and their restart when they fail."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from mooactor.cluster.launch import ssh
from mooactor.cluster.launch.addresses import bracketed
from mooactor.cluster.launch.output import Output
from mooactor.cluster.launch.plan import Plan, command
from mooactor.cluster.launch.program import Program
from mooactor.cluster.launch.targets import LaunchError, Target
from mooactor.host.eventloop import EventLoop

_READY = r"mooactor host (?P<name>.+) joined tcp://\S+"
_AGAIN_S, _AGAIN_AT_MOST_S = 1.0, 30.0  # before a host is started again


class Hosts:
    """``mooactor host`` on each target.

    Args:
      start_program: starts one; as `Launch.start_program`.
    """

    def __init__(
        self,
        plan: Plan,
        loop: EventLoop,
        output: Output,
        start_program: Callable[..., Program],
    ) -> None:
        self.running: list[Program] = []  # those that have joined, and restarted ones
        self.over = False  # none is started again
        self._plan, self._loop, self._output = plan, loop, output
        self._start_program = start_program
        self._address, self._port = "", 0
        self._again: Counter[str] = Counter()  # attempts to start one again

    def start(self, address: str, port: int, wait: Callable[..., bool]) -> None:
        """Start all at the same time, and wait until enough of them have joined. Hosts
        that others start are counted by `Launch.gather`.

        Args:
          address: this machine's own, for a host on it.
          port: of the broker.
          wait: as `Launch.wait`.

        Raises:
          LaunchError: too few have joined.
        """
        plan = self._plan
        started = [self.start_one(target, address, port) for target in plan.targets]
        # In a job rank 0 starts one of many, and that one must be there: the program
        # runs on it.
        enough = min(plan.min_hosts or len(started), len(started))

        def settled() -> bool:
            failed = sum(p.code is not None for p in started)
            waiting = any(p.ready is None and p.code is None for p in started)
            return not waiting or failed > len(started) - enough

        wait(settled, time.monotonic() + plan.patience_s)
        missing = [p for p in started if p.ready is None or p.code is not None]
        self.running = [p for p in started if p not in missing]
        self._do_without(missing, enough)

    def _do_without(self, missing: list[Program], enough: int) -> None:
        reasons = [self.reason(program) for program in missing]
        for program in missing:
            program.end(0.0)
        if len(self.running) < enough:
            # Those that were still on their way are not to blame.
            blamed = [r for p, r in zip(missing, reasons) if p.code is not None]
            raise LaunchError("; ".join(blamed or reasons))
        for reason in reasons:
            self._output.say(f"{reason}; the run goes on without it")

    def start_one(self, target: Target, address: str, port: int) -> Program:
        """Start one; it joins the broker at `port` of the launching machine."""
        self._address, self._port = address, port
        plan = self._plan
        numbers = {"--num-cpus": target.num_cpus, "--num-gpus": target.num_gpus}
        join = f"tcp://{{ADDRESS}}:{port}"
        words = ["host", "--join", join, "--name", target.name, *plan.offers]
        for option, number in numbers.items():
            words += [option, str(number)] if number is not None else []
        words += plan.port_words
        reached = address if target.is_here else plan.address
        order = plan.order(
            command(*words),
            reached and bracketed(reached),
            MOOACTOR_HOST_NAME=target.name,
        )
        if target is plan.targets[0]:
            order["script"] = plan.script  # better missed now than later
        python = plan.interpreter
        return self._start_program(
            target, python, order, label=target.name, ready=_READY
        )

    def reason(self, program: Program) -> str:
        """Why one has not joined."""
        name = program.target.name
        if program.code is None:
            target = program.target
            works = "" if target.is_here else f"{ssh.trial(target)} works, and "
            return (
                f"host {name} has not joined in {self._plan.patience_s:.0f} s; look "
                f"whether {works}a firewall keeps it from this machine (--ports, "
                "--address), or allow more time with --patience"
            )
        return f"host {name} did not start: {program.failure_to_start}"

    def mind(self) -> None:
        """Start those again that have failed; the program learns from its session what
        is there. One that was told to stop has ended with 0, and stays away."""
        for program in [p for p in self.running if p.code is not None]:
            self.running.remove(program)
            name = program.target.name
            if program.ready or not self._again[name]:
                again = "; it is started again" if program.code else ""
                self._output.say(f"host {name} has ended: {program.failure}{again}")
            if program.ready:
                self._again[name] = 0
            if program.code:
                pause_s = min(_AGAIN_S * 2 ** self._again[name], _AGAIN_AT_MOST_S)
                self._again[name] += 1
                self._loop.later(pause_s, partial(self._start_again, program.target))

    def _start_again(self, target: Target) -> None:
        if not self.over:
            with contextlib.suppress(LaunchError):
                again = self.start_one(target, self._address, self._port)
                self.running.append(again)
