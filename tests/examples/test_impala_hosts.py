# SPDX-License-Identifier: MIT
"""The IMPALA example on several hosts: network namespaces with `mooactor host`."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import mooactor as moo
from mooactor.rl import Display, session
from tests.clusters import Cluster, cluster, network
from tests.conftest import eventually
from tests.examples.conftest import EXAMPLE, ROOT, flags_of
from tests.processes import Process

PATIENCE_S = 120.0  # for what takes seconds on an idle machine
REPORTS = 5
COUNTS = {"a": 2, "b": 2}  # actors at the start
SETTINGS: dict[str, object] = {"env": "CartPole-v1", "actors": 6, "learners": 1}


@pytest.fixture
def hosts() -> Iterator[Cluster]:
    """Hosts b and c, and a, where the driver and the broker are."""
    with cluster("bc", driver="a") as made:
        yield made


def environment(made: Cluster) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    own = {"MOOACTOR_HOST_NAME": "a", "PYTHONPATH": path}
    return {**made.environment("a"), **own}


def actors_on(host: str) -> list[int]:
    """The pids of the example's actors that run there."""
    rows = {row["name"]: row["actors"] for row in moo.hosts()}
    running = [one for one in rows.get(host, ()) if one["state"] == "running"]
    return [one["pid"] for one in running if one["label"].startswith("Actor")]


class Outage(Display):
    """Kills host b in the middle of a run, starts it again, and ends the run once the
    actors there have played again."""

    def __init__(self, made: Cluster, interrupted: threading.Event) -> None:
        super().__init__("outage", 1)
        self.made = made
        self.interrupted = interrupted
        self.rows: list[Any] = []
        self.phases = iter([self.whole, self.held, self.reduced, self.whole_again])
        self.phase = next(self.phases)
        self.since = 0
        self.stopped: list[int] = []
        self.back: dict[Process, float] = {}  # seconds when they were back

    def show(self, row: Any) -> None:
        self.rows.append(row)
        if len(self.rows) - self.since >= REPORTS and self.phase():
            self.since = len(self.rows)

    def whole(self) -> bool:
        found = {host: len(actors_on(host)) for host in "abc"}
        assert found == {"a": 2, "b": 2, "c": 2}
        assert [row["name"] for row in moo.hosts()] == ["a", "b", "c"]
        self.stopped = actors_on("b")
        for pid in self.stopped:
            os.kill(pid, signal.SIGSTOP)
        self.phase = next(self.phases)
        return True

    def held(self) -> bool:
        """So many reports were made meanwhile: calls to its actors are under way."""
        self.made.members["b"].kill()
        for pid in self.stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.phase = next(self.phases)
        return True

    def reduced(self) -> bool:
        """So many reports were made without it."""
        assert len(actors_on("a")) == len(actors_on("c")) == 2
        assert not actors_on("b")
        assert self.rows[-1]["lost_calls"] > 0
        self.made.start_host("b")
        assert eventually(lambda: len(actors_on("b")) == 2, PATIENCE_S)
        back = map(Process.of, actors_on("b"))
        self.back = {process: process.used_s() for process in back}
        self.phase = next(self.phases)
        return True

    def whole_again(self) -> bool:
        """Its actors play: what waits in its mailbox uses no processor."""
        used = [one.used_s() - before for one, before in self.back.items()]
        if min(used) > 0.5:
            self.interrupted.set()
        return False


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_training_goes_on_without_a_host_and_again_with_it(
    impala: ModuleType, hosts: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in environment(hosts).items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(impala, "REPORT_PERIOD_S", 0.3)
    interrupted = threading.Event()
    settings = {**SETTINGS, "total_steps": 1_000_000_000, "run_dir": tmp_path}
    config = impala.read_config(flags_of(settings))
    with hosts.network.inside("a"), session(hosts.address) as rows:
        plan = impala.make_plan(config, rows)
        run, display = impala.open_run(plan), Outage(hosts, interrupted)
        progress, _ = impala.train(plan, run, display, interrupted)
    assert interrupted.is_set()
    steps = [row["step"] for row in display.rows]
    assert steps == sorted(set(steps))
    assert progress.steps >= steps[-1] > 0


class Newcomer(Display):
    """Has host c join in the middle of a run, and ends the run once the actors there
    have played."""

    def __init__(self, made: Cluster, interrupted: threading.Event) -> None:
        super().__init__("newcomer", 1)
        self.made = made
        self.interrupted = interrupted
        self.rows: list[Any] = []
        self.began: dict[Process, float] = {}  # seconds used when they were there

    def show(self, row: Any) -> None:
        self.rows.append(row)
        if len(self.rows) == REPORTS:
            assert {host: len(actors_on(host)) for host in "abc"} == COUNTS | {"c": 0}
            self.made.start_host("c", "--num-cpus", "2")
        there = actors_on("c")
        assert len(there) <= 2
        for pid in there:
            process = Process.of(pid)
            if process not in self.began:
                self.began[process] = process.used_s()
        used = [process.used_s() - begun for process, begun in self.began.items()]
        if len(used) == 2 and min(used) > 0.5:
            assert {host: len(actors_on(host)) for host in "ab"} == COUNTS
            self.interrupted.set()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_host_that_joins_during_training_gets_its_share_of_actors(
    impala: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with network("bca") as net:
        made = Cluster(net, broker="a")
        try:
            made.start_broker()
            made.start_host("b", "--num-cpus", "2")
            for key, value in environment(made).items():
                monkeypatch.setenv(key, value)
            monkeypatch.setattr(impala, "REPORT_PERIOD_S", 0.3)
            interrupted = threading.Event()
            settings = {**SETTINGS, "total_steps": 1_000_000_000, "run_dir": tmp_path}
            del settings["actors"]
            settings["connect"] = made.address
            config = impala.read_config(flags_of(settings))
            with net.inside("a"), session(made.address) as rows:
                rows = [{**row, "cpus": 2} for row in rows]
                plan = impala.make_plan(config, rows)
                run, display = impala.open_run(plan), Newcomer(made, interrupted)
                impala.train(plan, run, display, interrupted)
        finally:
            made.close()
    assert interrupted.is_set()
    steps = [row["step"] for row in display.rows]
    assert steps == sorted(set(steps))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_program_joins_a_cluster_trains_and_plays_there(
    hosts: Cluster, tmp_path: Path
) -> None:
    settings = {**SETTINGS, "connect": hosts.address, "run_dir": tmp_path}
    settings |= {"total_steps": 20_000, "eval": True, "eval_games": 6}
    del settings["actors"], settings["learners"]
    done = subprocess.run(
        [*hosts.network.on("a"), sys.executable, str(EXAMPLE), *flags_of(settings)],
        env=environment(hosts),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"on \d+ cores on 3 hosts: \d+ actors of \d+ envi", done.stdout)
    assert "trained policy: return" in done.stdout
    assert "random policy: return" in done.stdout
