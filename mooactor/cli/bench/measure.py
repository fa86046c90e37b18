# SPDX-License-Identifier: MIT
"""The measurement of times: by turns, in medians."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True)
class Effort:
    """The length of measurements: `rounds` of turns, `repeats` in each as a share of
    full."""

    rounds: int
    share: float

    def repeats(self, full: int) -> int:
        """`full`, or less of it, and never less than three."""
        return max(3, int(full * self.share))


#: The processors of the threads of a caller, and of those of its callee.
Placement = tuple[set[int], set[int]]
ANYWHERE: Placement = (set(), set())  # where the kernel likes

THOROUGH = Effort(rounds=9, share=1.0)
QUICK = Effort(rounds=3, share=0.3)


def turn_about(rounds: int, *works: Callable[[], float]) -> list[float]:
    """Let each of `works` measure once per round; return their medians."""
    return [statistics.median(values) for values in _turns(rounds, *works)]


def _turns(rounds: int, *works: Callable[[], _T]) -> list[list[_T]]:
    """The results of each of `works` in each round.

    One round before them is discarded: it warms caches, connections and pages.
    """
    found: list[list[_T]] = [[] for _ in works]
    for turn in range(rounds + 1):
        for values, work in zip(found, works, strict=True):
            value = work()
            if turn:
                values.append(value)
    return found


class Calls(NamedTuple):
    """The time of a call in seconds: of the clock, and of all processors together."""

    p50: float
    mean: float
    p99: float
    processor: float


def calls(
    function: Callable[[], object], repeats: int, callee: int, place: Placement
) -> Calls:
    """Call `function` repeatedly; `callee` is the pid of the process that answers."""
    spent = []
    with _placed(place, callee):
        before = time.process_time() + processor_time(callee)
        for _ in range(repeats):
            began = time.perf_counter()
            function()
            spent.append(time.perf_counter() - began)
        processor = time.process_time() + processor_time(callee) - before
    spent.sort()
    return Calls(
        statistics.median(spent),
        statistics.fmean(spent),
        spent[(len(spent) * 99 - 1) // 100],
        processor / repeats,
    )


def calls_turn_about(rounds: int, *works: Callable[[], Calls]) -> list[Calls]:
    """As `turn_about`, of each figure."""
    return [
        Calls(*map(statistics.median, zip(*spells, strict=True)))
        for spells in _turns(rounds, *works)
    ]


def mean_of_calls(found: Iterable[Calls]) -> Calls:
    """The mean of each figure."""
    return Calls(*map(statistics.fmean, zip(*found, strict=True)))


def placements() -> list[Placement]:
    """One processor for both ends of a call, and one for each.

    Beside busy processes the kernel chooses one of these by chance, and stays with it
    for seconds. Calls between two busy processors take several times as long.
    """
    first, *others = sorted(os.sched_getaffinity(0))
    return [({first}, {first}), *(({first}, {other}) for other in others[:1])]


@contextmanager
def _placed(place: Placement, callee: int) -> Iterator[None]:
    ends = (os.getpid(), callee)
    before = [os.sched_getaffinity(pid) for pid in ends]
    try:
        for pid, processors, all_ in zip(ends, place, before, strict=True):
            keep_on(pid, processors or all_)
        yield
    finally:
        for pid, processors in zip(ends, before, strict=True):
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
def busy_loops(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Other work on the machine: `count` processes want a core each, all the time."""
    # they end with their parent, should that be killed
    program = f"import os\nwhile os.getppid() == {os.getpid()}: sum(range(10000))"
    command = [sys.executable, "-S", "-c", program]
    loops: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            loops.append(subprocess.Popen(command))
        yield loops
    finally:
        for process in loops:
            process.kill()
            process.wait()
