# SPDX-License-Identifier: MIT
"""`Injector`: does to the processes and cables of a run what the schedule says."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.chaos.history import History
from tests.chaos.schedule import Fault
from tests.clusters import Cluster, Network, Program
from tests.processes import Process

Undo = Callable[[], object]


class Injector:
    """The faults of one act.

    Args:
      directory: of the histories, which say where actors are.
      driver: the driver's process.
      cluster: the hosts; None on one machine.
    """

    def __init__(
        self,
        directory: Path,
        notes: History,
        driver: Process,
        cluster: Cluster | None = None,
    ) -> None:
        self._directory, self._notes = directory, notes
        self._driver, self._cluster = driver, cluster
        self._undo: list[tuple[float, int, Undo]] = []
        self._numbers = itertools.count()

    def run(self, faults: list[Fault], seconds: float) -> None:
        """Inject them, each at its time, and return after so many seconds or when the
        driver has ended. Lasting faults are undone by then."""
        start = time.monotonic()
        for fault in faults:
            self._wait(start + fault.at)
            self.inject(fault)
        self._wait(start + seconds)
        self._wait(max([due for due, _, _ in self._undo], default=0.0))

    def _wait(self, until: float) -> None:
        """Until then, undo what is over."""
        while (now := time.monotonic()) < until or self._is_due(now):
            if self._is_due(now):
                heapq.heappop(self._undo)[2]()
                continue
            due = [until, *(due for due, _, _ in self._undo[:1])]
            time.sleep(max(0.0, min(due) - now))  # the schedule is one of times

    def _is_due(self, now: float) -> bool:
        return bool(self._undo) and self._undo[0][0] <= now

    def inject(self, fault: Fault) -> None:
        """One fault, now."""
        what, _, _ = fault.kind.partition("-")
        undo = getattr(self, f"_{what}")(fault)
        if undo is not None:
            due = time.monotonic() + fault.seconds
            heapq.heappush(self._undo, (due, next(self._numbers), undo))

    def _note(self, kind: str, target: str, **facts: object) -> None:
        self._notes.note("fault", kind=kind, target=target, **facts)

    def _note_lasting(self, kind: str, fault: Fault, **facts: object) -> None:
        until = time.monotonic() + fault.seconds
        self._note(kind, fault.target, until=until, **facts)

    # -- processes ---------------------------------------------------------

    def find(self, target: str) -> Process | None:
        """The process that has a role at present."""
        if target == "driver":
            return self._driver
        if target in ("agent", "zygote"):
            return self._named(f"moo-{target}")
        if (program := self._program(target)) is None:
            return self._actor(target)
        with contextlib.suppress(ProcessLookupError):
            return Process.of(program.pid)
        return None  # it was killed, and is not started again yet

    def _program(self, target: str) -> Program | None:
        """The broker, or a host."""
        if self._cluster is None:
            return None
        if target == "broker":
            return self._cluster.broker
        return self._cluster.members.get(target)

    def _named(self, name: str) -> Process | None:
        for process in self._driver.descendants():
            with contextlib.suppress(OSError):
                comm = Path(f"/proc/{process.pid}/comm").read_text().strip()
                if comm == name and process.is_running():
                    return process
        return None

    def _actor(self, role: str) -> Process | None:
        """The one that was born last."""
        born = []
        for path in self._directory.glob(f"{role}.*.history"):
            with open(path) as file:
                line = file.readline()
            if line.endswith("\n"):
                t, _, facts = json.loads(line)
                born.append((t, Process(facts["pid"], facts["started"])))
        if not born or not max(born)[1].is_running():
            return None
        return max(born)[1]

    def _kill(self, fault: Fault) -> Undo | None:
        if fault.kind in ("kill-host", "kill-broker"):
            return self._kill_program(fault)
        process = self.find(fault.target)
        if process is None:
            self._note("none", fault.target, wanted="kill")
            return None
        kind = "kill-zygote" if fault.target == "zygote" else "kill"
        ends = fault.target in ("agent", "driver")
        self._note(kind, fault.target, pid=process.pid, ends_session=ends)
        process.kill()
        return None

    def _stop(self, fault: Fault) -> Undo | None:
        process = self.find(fault.target)
        if process is None:
            self._note("none", fault.target, wanted="stop")
            return None
        self._note_lasting("stop", fault, pid=process.pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGSTOP)
        return lambda: _go_on(process)

    # -- hosts -------------------------------------------------------------

    def _kill_program(self, fault: Fault) -> Undo:
        cluster, program = self._cluster, self._program(fault.target)
        assert cluster is not None and program is not None
        self._note_lasting(fault.kind, fault, pid=program.pid)
        program.kill()
        if fault.target == "broker":
            return lambda: cluster.start_broker(wait=False)
        return lambda: cluster.start_host(fault.target, wait=False)

    def _cut(self, fault: Fault) -> Undo:
        network = self._network
        self._note_lasting("cut", fault)
        network.cut(fault.target)
        return lambda: network.heal(fault.target)

    def _swallow(self, fault: Fault) -> Undo:
        network, ends = self._network, fault.target.split()
        self._note_lasting("swallow", fault, hosts=ends)
        network.swallow(*ends)
        return lambda: network.deliver(*ends)

    def _loss(self, fault: Fault) -> Undo:
        network = self._network
        self._note_lasting("loss", fault)
        network.lose(fault.target, 50)
        return lambda: network.lose_none(fault.target)

    @property
    def _network(self) -> Network:
        assert self._cluster is not None
        return self._cluster.network


def _go_on(process: Process) -> None:
    if process.is_running():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)
