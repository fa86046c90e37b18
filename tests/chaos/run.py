# SPDX-License-Identifier: MIT
"""A chaos run: a load of all kinds, faults by a seeded schedule, and the checker.

``make chaos`` runs it for ten minutes. The variables:

=======================  ============================================================
CHAOS_SECONDS            how long it lasts, without the acts' beginnings and ends: 600
CHAOS_SEED               chooses the faults; by default a new one, which is printed
CHAOS_ACT                one act of the run alone, by its number
CHAOS_HOSTS              hosts beside the driver's: 3 namespaces, or 0, one machine
CHAOS_KEEP               a directory for the histories of acts with violations
=======================  ============================================================
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.chaos import history
from tests.chaos.checker import check, report, summary
from tests.chaos.faults import Injector
from tests.chaos.history import History
from tests.chaos.leftovers import Remains
from tests.chaos.rules import Violation
from tests.chaos.schedule import Act, Fault, acts
from tests.clusters import Cluster, Network
from tests.conftest import eventually
from tests.networks import why_not
from tests.processes import VARIABLE, Process

ROOT = Path(__file__).parents[2]
START_S, END_S = 120.0, 120.0  # for the beginning and the end of an act, at most
_LAST_LINES = 200  # of what the processes have printed


class Result(NamedTuple):
    """Of one act."""

    act: Act
    violations: list[Violation]
    summary: str
    directory: Path


class Stage:
    """Where the acts of a run take place: directories, and hosts if there are any.

    Args:
      base: a directory, of a short name because sockets will lie in it.
      cluster: the hosts of actors, and one more host for drivers.
      driver: the name of that one.
    """

    def __init__(
        self, base: Path, cluster: Cluster | None = None, driver: str = "d"
    ) -> None:
        self.base, self.cluster, self._driver = base, cluster, driver
        self._temporary = cluster.directory if cluster else base / "tmp"
        self._temporary.mkdir(exist_ok=True)
        # By this all processes of the run are found; within a test it is there.
        os.environ.setdefault(VARIABLE, f"chaos-{secrets.token_hex(8)}")

    def play(self, act: Act) -> Result:
        """One act: its driver, its faults, its end, and what the checker says."""
        directory = self.base / f"act-{act.number}"
        directory.mkdir(parents=True)
        notes = History(str(directory), "runner")
        me = {"role": "runner", "actor": "", "incarnation": 0, "pid": os.getpid()}
        notes.note("born", started=0, host="", **me)
        if self.cluster is not None:
            self.cluster.network.mend()
            self.cluster.await_ready()
            assert eventually(self.cluster.have_joined, START_S), self.cluster.broker
        remains = Remains(self._temporary, self.cluster)
        with open(directory / "output", "wb") as output:
            driver = self._start(act, directory, output.fileno())
            try:
                self._load(act, directory, notes, driver)
                self._end(act, notes, driver)
                for text in remains.after():
                    notes.note("left", text=text)
            finally:
                remains.end()
                driver.communicate()
        notes.note("over")
        notes.close()
        events = history.read(directory)
        return Result(act, check(events), summary(events), directory)

    def _start(self, act: Act, directory: Path, output: int) -> subprocess.Popen[bytes]:
        """The driver; its setting is described in tests/chaos/driver.py."""
        setting: dict[str, Any] = {"directory": str(directory), "seed": act.seed}
        setting |= {"hosts": {}, "place": [], "address": None}
        words = [sys.executable, "-m", "tests.chaos.driver"]
        environment = {**os.environ, "TMPDIR": str(self._temporary)}
        if self.cluster is not None:
            spaces = self.cluster.network.namespace
            setting["hosts"] = {_inode(spaces[host]): host for host in spaces}
            setting["place"] = [*self.cluster.members, self._driver]
            setting["address"] = self.cluster.address
            words = [*self.cluster.network.on(self._driver), *words]
            environment = self.cluster.environment(self._driver)
            environment["MOOACTOR_HOST_NAME"] = self._driver
        environment["PYTHONPATH"] = str(ROOT)
        return subprocess.Popen(
            [*words, json.dumps(setting)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
        )

    def _load(
        self, act: Act, directory: Path, notes: History, driver: subprocess.Popen[bytes]
    ) -> None:
        """Wait until the driver is ready, and inject the faults."""
        output = directory / "output"

        def is_ready() -> bool:
            return b"ready\n" in output.read_bytes()

        eventually(lambda: is_ready() or driver.poll() is not None, START_S)
        if not is_ready():
            notes.note("left", text="the driver did not become ready")
            return
        injector = Injector(directory, notes, Process.of(driver.pid), self.cluster)
        injector.run(act.faults, act.seconds)
        if act.end != "finish":
            _, _, target = act.end.partition("-")
            injector.inject(Fault(0.0, act.end, target, 0.0))

    def _end(self, act: Act, notes: History, driver: subprocess.Popen[bytes]) -> None:
        """Tell the driver to finish, and wait until it has."""
        assert driver.stdin is not None
        driver.stdin.close()
        try:
            code = driver.wait(END_S)
        except subprocess.TimeoutExpired:
            driver.send_signal(signal.SIGUSR1)  # which says where it hangs
            time.sleep(2.0)  # for it to say so; nobody else tells when it has
            notes.note("left", text=f"the driver had not ended after {END_S:g} s")
            driver.kill()
            return
        expected = -signal.SIGKILL if act.end == "kill-driver" else 0
        if code != expected:
            notes.note("left", text=f"the driver ended with {code}, not {expected}")


def _inode(namespace: str) -> int:
    return os.stat(f"/run/netns/{namespace}").st_ino


def last_words(directory: Path) -> str:
    """The last output of the driver and the actors: a traceback, say."""
    with contextlib.suppress(OSError):
        lines = (directory / "output").read_text(errors="replace").splitlines()
        return "\n".join(["  the last lines of its output:", *lines[-_LAST_LINES:]])
    return "  no output"


def run(stage: Stage, plan: list[Act], keep: Path | None = None) -> bool:
    """Play the acts, print what happened, and say whether no promise was broken."""
    broken: Counter[int] = Counter()
    for act in plan:
        print(act, flush=True)
        result = stage.play(act)
        print(f"  {result.summary}", flush=True)
        if result.violations:
            broken[act.number] = len(result.violations)
            print(report(result.violations), flush=True)
            print(last_words(result.directory), flush=True)
            if keep is not None:
                shutil.copytree(result.directory, keep / result.directory.name)
        shutil.rmtree(result.directory)
    for number, violations in broken.items():
        print(f"act {number}: {violations} violations")
    return not broken


@contextlib.contextmanager
def stage(hosts: list[str]) -> Iterator[Stage]:
    """A stage on this machine, or with so many hosts in network namespaces."""
    with tempfile.TemporaryDirectory(prefix="moo-chaos-") as base:
        if not hosts:
            yield Stage(Path(base))
            return
        network = Network([*hosts, _DRIVER])
        cluster = Cluster(network, base + "/c", broker=_DRIVER)
        try:
            yield Stage(Path(base), cluster.start(*hosts), _DRIVER)
        finally:
            cluster.close()
            network.close()


_DRIVER = "d"  # the host of the drivers and the broker


def main() -> int:
    seconds = float(os.environ.get("CHAOS_SECONDS", "600"))
    seed = int(os.environ.get("CHAOS_SEED") or secrets.randbelow(1 << 32))
    if (number := os.environ.get("CHAOS_HOSTS", "")) == "":
        number = "0" if (why := why_not()) else "3"
        print(f"on this machine alone: {why}" if why else "on hosts of its own")
    hosts = list("abcefghi"[: int(number)])
    again = f"CHAOS_HOSTS={number} CHAOS_SEED={seed} CHAOS_SECONDS={seconds:g}"
    print(f"the same faults again: {again} make chaos", flush=True)
    plan = acts(seed, seconds, hosts)
    if only := os.environ.get("CHAOS_ACT"):
        plan = [act for act in plan if act.number == int(only)]
    keep = os.environ.get("CHAOS_KEEP")
    with stage(hosts) as where:
        good = run(where, plan, Path(keep) if keep else None)
    print("no promise was broken" if good else f"promises were broken; seed {seed}")
    return int(not good)


if __name__ == "__main__":
    # As Ctrl-C does: hosts, the broker and their network go, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
