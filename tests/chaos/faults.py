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
from tests.clusters import Cluster
from tests.processes import Process

Undo = Callable[[], None]


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
        driver has ended. What lasts is undone by then."""
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
            time.sleep(max(0.0, min(due) - now))

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

    # -- processes ---------------------------------------------------------

    def find(self, target: str) -> Process | None:
        """The process that has a role at present."""
        if target == "driver":
            return self._driver
        if target in ("agent", "zygote"):
            return self._named(f"moo-{target}")
        if self._cluster is not None:
            program = self._cluster.members.get(target)
            if target == "broker":
                program = self._cluster.broker
            if program is not None:
                with contextlib.suppress(ProcessLookupError):
                    return Process.of(program.pid)
                return None  # it was killed, and is not started again yet
        return self._actor(target)

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
        until = time.monotonic() + fault.seconds
        self._note("stop", fault.target, pid=process.pid, until=until)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGSTOP)
        return lambda: _go_on(process)

    # -- hosts -------------------------------------------------------------

    def _kill_program(self, fault: Fault) -> Undo:
        cluster = self._cluster
        assert cluster is not None
        target, until = fault.target, time.monotonic() + fault.seconds
        program = cluster.broker if target == "broker" else cluster.members[target]
        assert program is not None
        self._note(fault.kind, target, pid=program.pid, until=until)
        program.kill()
        if target == "broker":
            return lambda: _ignore(cluster.start_broker(wait=False))
        return lambda: _ignore(cluster.start_host(target, wait=False))

    def _cut(self, fault: Fault) -> Undo:
        assert self._cluster is not None
        network, until = self._cluster.network, time.monotonic() + fault.seconds
        self._note("cut", fault.target, until=until)
        network.cut(fault.target)
        return lambda: network.heal(fault.target)

    def _swallow(self, fault: Fault) -> Undo:
        assert self._cluster is not None
        network, until = self._cluster.network, time.monotonic() + fault.seconds
        source, target = fault.target.split()
        self._note("swallow", fault.target, until=until, hosts=[source, target])
        network.swallow(source, target)
        return lambda: network.deliver(source, target)

    def _loss(self, fault: Fault) -> Undo:
        assert self._cluster is not None
        network, until = self._cluster.network, time.monotonic() + fault.seconds
        self._note("loss", fault.target, until=until)
        network.lose(fault.target, 50)
        return lambda: network.lose_none(fault.target)


def _go_on(process: Process) -> None:
    if process.is_running():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)


def _ignore(_: object) -> None:
    """Starting a program is all that its undoing needs."""
