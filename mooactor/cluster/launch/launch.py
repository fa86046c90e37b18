# SPDX-License-Identifier: MIT
"""A launch: a broker, a host agent on each target, and the user's program; they end
together.

Order: the broker is up before the hosts start, and all hosts have joined before the
program starts. The program's end, Ctrl-C, SIGTERM and SIGHUP end everything, within
three seconds. SIGUSR1 and SIGUSR2 go to the program alone. A host that fails is named,
and the run goes on without it. A broker that was killed is started again: its state is
soft.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from mooactor.cluster.launch import ssh
from mooactor.cluster.launch.plan import (
    HERE,
    LaunchError,
    Plan,
    Target,
    bracketed,
    command,
)
from mooactor.cluster.launch.supervisor import Program, Supervisor
from mooactor.host.addresses import ports_text
from mooactor.process import files

if TYPE_CHECKING:
    from mooactor.cluster.launch.job import Job

_BROKER_READY = r"mooactor broker at tcp://(?P<host>\S+):(?P<port>\d+)$"
_HOST_READY = r"mooactor host (?P<name>.+) joined tcp://\S+$"
_HAS_JOINED = re.compile(r"mooactor broker: host (?P<name>.+) has joined from ")
_PATIENCE_S = 30.0  # with the broker


class Launch:
    """One launch. `run` is called once.

    Args:
      job: what started this command on every host; None: the targets are all.
    """

    def __init__(self, plan: Plan, job: Job | None = None) -> None:
        self._plan, self._job = plan, job
        self._supervisor = Supervisor(plan.grace_s)
        self._broker: Program | None = None
        self._port = 0  # of the broker, once it was up
        self._joined: set[str] = set()  # hosts, as the broker has said
        self._hosts: list[Program] = []  # those that have joined

    def run(self) -> int:
        """Run everything; the exit code is the program's, 2 if it never ran, and
        128 + N after signal N before that."""
        files.raise_limit()  # each host takes four
        return self._supervisor.run(self._run)

    def _run(self) -> int:
        plan = self._plan
        others = [target for target in plan.targets if not target.is_here]
        if plan.sync:
            ssh.copy(others, plan.cwd, self._supervisor.wait)
        alone = not others
        address, listen = "127.0.0.1", "127.0.0.1" if alone else "*"
        if self._job is not None:
            address, listen = self._job.broker(plan)
        elif plan.address is not None:
            address = bracketed(plan.address)
        elif others and len(others) < len(plan.targets):
            address = bracketed(ssh.own_address(others[0]))
        # A port of --ports is any of them.
        listen += "" if plan.ports or ":" in listen else ":0"
        self._start_broker(address, listen)
        self._start_hosts(address)
        if self._job is not None:
            self._gather(self._job, address)
        return self._run_program(address)

    # -- the broker ---------------------------------------------------------

    def _start_broker(self, address: str, listen: str) -> None:
        self._broker = broker = self._new_broker(address, listen)
        self._supervisor.wait(lambda: broker.ready or broker.failed, _PATIENCE_S)
        if broker.ready is None:
            late = f"it was not ready in {_PATIENCE_S:.0f} s, so this machine may be "
            why = broker.failure if broker.failed else f"{late}overloaded: try again"
            raise LaunchError(f"the broker did not start: {why}")
        self._port = int(broker.ready["port"])
        again = f"{listen.rpartition(':')[0] or listen}:{self._port}"
        self._supervisor.mind = lambda: self._mind(address, again)

    def _new_broker(self, address: str, listen: str) -> Program:
        ports = [] if ":" in listen else self._plan.port_words
        order = self._plan.order(command("broker", "--listen", listen, *ports), address)
        order |= {"cwd": "/", "path": self._plan.own_path}
        return self._supervisor.start(
            HERE,
            sys.executable,
            order,
            label="broker",
            ready=_BROKER_READY,
            heard=self._hear,
            is_last=True,
        )

    def _hear(self, line: str) -> None:
        if found := _HAS_JOINED.match(line):
            self._joined.add(found["name"])

    def _mind(self, address: str, listen: str) -> None:
        say, broker = self._supervisor.say, self._broker
        for host in [host for host in self._hosts if host.code is not None]:
            self._hosts.remove(host)
            say(f"host {host.target.name} has ended: {_end_of(host)}")
        if broker is None or broker.code is None:
            return
        if broker.code and broker.ready:
            say(f"the broker ended ({broker.failure}); another starts")
            self._broker = self._new_broker(address, listen)
        else:
            say(f"the broker has ended ({_end_of(broker)}): no host joins any more")
            self._broker = None

    # -- the hosts ----------------------------------------------------------

    def _start_hosts(self, address: str) -> None:
        """Start all at the same time, and wait until enough of them have joined.

        Raises:
          LaunchError: too few have.
        """
        plan, supervisor = self._plan, self._supervisor
        started = [
            start_host(supervisor, plan, target, address, self._port)
            for target in plan.targets
        ]
        # In a job this is one host of many, and it must be there: the program runs on
        # it.
        enough = min(plan.min_hosts or len(started), len(started))

        def settled() -> bool:
            failed = sum(p.failed for p in started)
            waiting = any(p.ready is None and not p.failed for p in started)
            return not waiting or failed > len(started) - enough

        supervisor.wait(settled, plan.patience_s)
        self._hosts = [p for p in started if p.ready and not p.failed]
        missing = [p for p in started if p not in self._hosts]
        reasons = [why_not_joined(plan, program) for program in missing]
        if len(self._hosts) < enough:
            # Those that were still on their way are not to blame.
            blamed = [r for p, r in zip(missing, reasons) if p.failed]
            raise LaunchError("; ".join(blamed or reasons))
        for program, reason in zip(missing, reasons, strict=True):
            program.end(0.0)
            supervisor.say(f"{reason}; the run goes on without it")

    def _gather(self, job: Job, address: str) -> None:
        """Wait until the hosts of the other ranks have joined.

        Raises:
          LaunchError: too few have.
        """
        plan = self._plan
        job.publish(plan.key, address, self._port)
        wanted = plan.min_hosts or job.rank.hosts or 1
        if not self._supervisor.wait(
            lambda: len(self._joined) >= wanted, plan.patience_s
        ):
            raise LaunchError(
                f"{len(self._joined)} of {wanted} hosts have joined in "
                f"{plan.patience_s:.0f} s ({', '.join(sorted(self._joined))}): look at "
                "the output of the others, or say --min-hosts N"
            )

    # -- the program --------------------------------------------------------

    def _run_program(self, address: str) -> int:
        plan, supervisor = self._plan, self._supervisor
        supervisor.wait(lambda: True)  # a signal of before is not for it
        if not self._hosts:
            raise LaunchError("no host is left to run the program on: see above why")
        target = self._hosts[0].target
        # The host of that name takes the program's actors there.
        values = {"MOOACTOR_HOST_NAME": target.name}
        values["MOOACTOR_ADDRESS"] = f"tcp://{{ADDRESS}}:{self._port}"
        if plan.ports:
            values["MOOACTOR_PORTS"] = ports_text(plan.ports)
        order = plan.order([], _as_seen(plan, target, address), plan.program, **values)
        order["script"] = plan.script
        program = supervisor.start(target, plan.interpreter, order)
        code = supervisor.follow(program)
        if code == ssh.LOST and not target.is_here and not supervisor.interrupted:
            supervisor.say(
                f"what became of the program on host {target.name} is not known: ssh "
                f"has lost the connection, or it ended with exit code {code} of its own"
            )
        return code


def start_host(
    supervisor: Supervisor,
    plan: Plan,
    target: Target,
    address: str,
    port: int,
    *more: str,
) -> Program:
    """Start ``mooactor host`` there, to join the broker at that port of the launching
    machine, whose own address is `address`."""
    numbers = {"--num-cpus": target.num_cpus, "--num-gpus": target.num_gpus}
    words = ["host", "--join", f"tcp://{{ADDRESS}}:{port}", "--name", target.name]
    for option, number in numbers.items():
        words += [option, str(number)] if number is not None else []
    order = plan.order(
        command(*words, *plan.offers, *plan.port_words, *more),
        _as_seen(plan, target, address),
        MOOACTOR_HOST_NAME=target.name,
    )
    if target is plan.targets[0]:
        order["script"] = plan.script  # better missed now than later
    return supervisor.start(
        target, plan.interpreter, order, label=target.name, ready=_HOST_READY
    )


def why_not_joined(plan: Plan, program: Program) -> str:
    """Why a host has not."""
    target = program.target
    if program.failed:
        return f"host {target.name} did not start: {program.failure}"
    works = "" if target.is_here else f"{ssh.trial(target)} works, and "
    return (
        f"host {target.name} has not joined in {plan.patience_s:.0f} s; look whether "
        f"{works}a firewall keeps it from this machine (--ports, --address), or allow "
        "more time with --patience"
    )


def _as_seen(plan: Plan, target: Target, address: str) -> str | None:
    """The launching machine's address, as the target sees it; None: ssh says it."""
    return address if target.is_here else plan.address and bracketed(plan.address)


def _end_of(program: Program) -> str:
    return program.failure if program.code else "it was told to end"
