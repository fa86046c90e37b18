# SPDX-License-Identifier: MIT
"""The IMPALA example on several hosts: network namespaces with `mooactor host`."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import mooactor as moo
from impala import Display, session
from tests.clusters import Cluster, network
from tests.examples.conftest import ROOT, flags_of
from tests.processes import Process

REPORTS = 5
COUNTS = {"a": 2, "b": 2}  # actors at the start


def environment(made: Cluster) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    own = {"MOOACTOR_HOST_NAME": "a", "PYTHONPATH": path}
    return {**made.environment("a"), **own}


def actors_on(host: str) -> list[int]:
    """The pids of the example's actors that run there."""
    rows = {row["name"]: row["actors"] for row in moo.hosts()}
    running = [one for one in rows.get(host, ()) if one["state"] == "running"]
    return [one["pid"] for one in running if one["label"].startswith("Actor")]


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
