# SPDX-License-Identifier: MIT
"""The measurement of times: by turns, in medians."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Effort:
    """`rounds` of turns, and the share of the full repeats in each."""

    rounds: int
    share: float

    def repeats(self, full: int) -> int:
        """`full`, or less of it, and never less than three."""
        return max(3, int(full * self.share))


THOROUGH = Effort(rounds=9, share=1.0)
QUICK = Effort(rounds=3, share=0.3)


def turn_about(rounds: int, *works: Callable[[], Any]) -> list[Any]:
    """Let each of `works` measure once per round; return their medians.

    A work measures a number, or a tuple of several, whose medians are an array. One
    round before them is discarded: it warms caches, connections and pages.
    """
    found = [[work() for work in works] for _ in range(rounds + 1)]
    return [np.median(values, axis=0) for values in zip(*found[1:], strict=True)]


def median_seconds(function: Callable[[], object], repeats: int) -> float:
    """The median time that a call of `function` takes."""
    return float(np.median(_spent(function, repeats)))


def rate(function: Callable[[int], object], count: int) -> float:
    """`count` things done by ``function(count)``, per second."""
    began = time.perf_counter()
    function(count)
    return count / (time.perf_counter() - began)


def _spent(function: Callable[[], object], repeats: int) -> list[float]:
    spent = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        spent.append(time.perf_counter() - began)
    return spent


#: The processors of the threads of a caller, and of those of its callee.
Placement = tuple[set[int], set[int]]
ANYWHERE: Placement = (set(), set())  # where the kernel likes
FIGURES = ("p50", "mean", "p99", "processor")  # the last is of both ends together


def calls(
    function: Callable[[], object], repeats: int, callee: int, place: Placement
) -> tuple[float, ...]:
    """The `FIGURES` of calls that the process `callee` answers, in seconds."""
    with _placed(place, callee):
        before = time.process_time() + processor_time(callee)
        spent = _spent(function, repeats)
        processor = time.process_time() + processor_time(callee) - before
    p50, p99 = np.percentile(spent, [50, 99], method="lower")
    return p50, float(np.mean(spent)), p99, processor / repeats


def placements() -> list[Placement]:
    """One processor for both ends of a call, and one for each. Beside busy processes
    the kernel chooses one of these by chance; the second takes several times as long.
    """
    first, *others = sorted(os.sched_getaffinity(0))
    return [({first}, {first}), *(({first}, {other}) for other in others[:1])]


@contextmanager
def _placed(place: Placement, callee: int) -> Iterator[None]:
    before = {pid: os.sched_getaffinity(pid) for pid in (os.getpid(), callee)}
    try:
        for pid, processors in zip(before, place, strict=True):
            keep_on(pid, processors or before[pid])
        yield
    finally:
        for pid, processors in before.items():
            keep_on(pid, processors)


def keep_on(pid: int, processors: set[int]) -> None:
    """Keep the threads of a process, and those that they start, on these processors."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), processors)


def processor_time(pid: int) -> float:
    """The seconds that all threads of a process have spent."""
    # Linux's clock of another process, as clock_getcpuclockid(3) makes it.
    return time.clock_gettime((~pid << 3) | 2)


@contextmanager
def busy_loops(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Other work on the machine: `count` processes want a core each, all the time."""
    # they end with their parent, should that be killed
    program = f"import os\nwhile os.getppid() == {os.getpid()}: sum(range(10000))"
    command = [sys.executable, "-S", "-c", program]
    loops = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield loops
    finally:
        for process in loops:
            process.kill()
            process.wait()
