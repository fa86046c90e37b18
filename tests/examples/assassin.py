# SPDX-License-Identifier: MIT
"""Kills learners of a run of the example."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from impala import Display
from tests.examples.conftest import pids


class Assassin(Display):
    """Kills a learner when all of them train, ``times`` times, waits for a new one to
    train with the others, and then ends the run."""

    def __init__(self, learners: int, times: int, interrupted: threading.Event) -> None:
        super().__init__("assassin", 1)
        self.learners, self.times, self.interrupted = learners, times, interrupted
        self.rows: list[Any] = []
        self.killed: list[int] = []

    def show(self, row: Any) -> None:
        self.rows.append(row)
        there = pids("Learner")
        if row["learners"] < self.learners or {*self.killed} & {*there}:
            return
        if len(self.killed) == self.times:
            self.interrupted.set()
        elif len(there) == self.learners:
            self.killed.append(there[len(self.killed) % self.learners])
            os.kill(self.killed[-1], signal.SIGKILL)

    def check(self, saved: Any, steps: int) -> None:
        """Nothing was counted twice, or left out. The run has compared the weights."""
        assert len(self.killed) == self.times
        assert min(row["learners"] for row in self.rows[5:]) == self.learners - 1
        counted = [row["step"] for row in self.rows]
        assert counted == sorted(set(counted))
        learner, settings = saved["learner"], saved["settings"]
        made = learner["version"] * settings["batch"] * settings["unroll"]
        assert saved["steps"] == learner["steps"] == made == counted[-1] == steps
