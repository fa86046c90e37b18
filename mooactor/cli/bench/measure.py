# SPDX-License-Identifier: MIT
"""How times are taken: turn about, in medians."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """How long to measure: `rounds` of turns, `repeats` in each as a share of full."""

    rounds: int
    share: float

    def repeats(self, full: int) -> int:
        """`full`, or less of it, and never less than three."""
        return max(3, int(full * self.share))


THOROUGH = Effort(rounds=9, share=1.0)
QUICK = Effort(rounds=3, share=0.3)


def turn_about(rounds: int, *works: Callable[[], float]) -> list[float]:
    """Let each of `works` measure once per round; return their medians.

    One round more is done first and thrown away: it warms caches, connections and
    pages.
    """
    found: list[list[float]] = [[] for _ in works]
    for turn in range(rounds + 1):
        for values, work in zip(found, works, strict=True):
            value = work()
            if turn:
                values.append(value)
    return [statistics.median(values) for values in found]


def median_seconds(function: Callable[[], object], repeats: int) -> float:
    """The median time that a call of `function` takes."""
    spent = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        spent.append(time.perf_counter() - began)
    return statistics.median(spent)


def rate(function: Callable[[int], object], count: int) -> float:
    """`count` things done by ``function(count)``, per second."""
    began = time.perf_counter()
    function(count)
    return count / (time.perf_counter() - began)


@contextmanager
def helper(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A peer's own process: ``python -m mooactor.cli.bench.MODULE``, ended after."""
    command = [sys.executable, "-m", f"mooactor.cli.bench.{module}", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def busy_core() -> Iterator[subprocess.Popen[bytes]]:
    """Something else computes: one core of this machine is not ours alone."""
    # it ends with its parent, should that be killed
    program = f"import os\nwhile os.getppid() == {os.getpid()}: sum(range(10000))"
    process = subprocess.Popen([sys.executable, "-S", "-c", program])
    try:
        yield process
    finally:
        process.kill()
        process.wait()
