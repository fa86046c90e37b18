# SPDX-License-Identifier: MIT
"""The IMPALA example on several hosts: network namespaces with `mooactor host`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from impala import Display, session
from mooactor.rl import load_checkpoint
from tests.clusters import Cluster, cluster, network
from tests.examples.assassin import Assassin
from tests.examples.conftest import EXAMPLE, ROOT, flags_of, pids
from tests.processes import Process

REPORTS = 5
COUNTS = {"a": 2, "b": 2}  # actors at the start


def environment(made: Cluster) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    own = {"MOOACTOR_HOST_NAME": "a", "PYTHONPATH": path}
    return {**made.environment("a"), **own}


class Newcomer(Display):
    """Has host c join in the middle of a run, and ends the run once the actors there
    have played, and the learner there learns with the other."""

    def __init__(self, made: Cluster, interrupted: threading.Event) -> None:
        super().__init__("newcomer", 1)
        self.made = made
        self.interrupted = interrupted
        self.rows: list[Any] = []
        self.began: dict[Process, float] = {}  # seconds used when they were there

    def show(self, row: Any) -> None:
        self.rows.append(row)
        if len(self.rows) == REPORTS:
            assert {host: len(pids("Actor", host)) for host in "abc"} == COUNTS | {
                "c": 0
            }
            self.made.start_host("c", "--num-cpus", "2")
        there = pids("Actor", "c")
        assert len(there) <= 2
        for pid in there:
            process = Process.of(pid)
            if process not in self.began:
                self.began[process] = process.used_s()
        used = [process.used_s() - begun for process, begun in self.began.items()]
        if len(used) == 2 and min(used) > 0.5 and row["learners"] == 2:
            assert {host: len(pids("Actor", host)) for host in "ab"} == COUNTS
            assert [len(pids("Learner", host)) for host in "abc"] == [1, 0, 1]
            self.interrupted.set()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_host_that_joins_during_training_gets_its_share_of_actors_and_a_learner(
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
            settings = {"env": "CartPole-v1", "learners": 1, "run_dir": tmp_path}
            settings |= {"total_steps": 1_000_000_000, "connect": made.address}
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
    learner = load_checkpoint(tmp_path)["learner"]  # the batch is that of one learner
    assert learner["steps"] == learner["version"] * config.batch * config.unroll


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_learners_on_three_hosts_go_on_when_one_is_killed_and_heal_the_next(
    impala: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster("bc", driver="a") as hosts:
        for key, value in environment(hosts).items():
            monkeypatch.setenv(key, value)
        monkeypatch.setattr(impala, "REPORT_PERIOD_S", 0.3)
        settings = {"env": "CartPole-v1", "learners": 3, "actors": 3}
        settings |= {"run_dir": tmp_path, "total_steps": 10**9}
        settings |= {"connect": hosts.address}
        interrupted = threading.Event()
        assassin = Assassin(3, 3, interrupted)
        with hosts.network.inside("a"), session(hosts.address) as rows:
            plan = impala.make_plan(impala.read_config(flags_of(settings)), rows)
            assert sorted(plan.layout.learner_hosts) == ["a", "b", "c"]
            run = impala.open_run(plan)
            progress, _ = impala.train(plan, run, assassin, interrupted)
            assert [len(pids("Learner", host)) for host in "abc"] == [1, 1, 1]
        assassin.check(load_checkpoint(tmp_path), progress.steps)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_program_joins_a_cluster_trains_and_plays_there(tmp_path: Path) -> None:
    settings = {"env": "CartPole-v1", "run_dir": tmp_path, "total_steps": 20_000}
    settings |= {"eval": True, "eval_games": 6, "learners": 3}
    with cluster("bc", driver="a") as hosts:
        words = [*hosts.network.on("a"), sys.executable, str(EXAMPLE)]
        done = subprocess.run(
            [*words, *flags_of(settings | {"connect": hosts.address})],
            env=environment(hosts),
            capture_output=True,
            text=True,
            timeout=240,
        )
    assert done.returncode == 0, done.stderr
    assert re.search(r"on \d+ cores on 3 hosts: \d+ actors of \d+ envi", done.stdout)
    assert "trained policy: return" in done.stdout
    assert "random policy: return" in done.stdout
