# SPDX-License-Identifier: MIT
"""From nothing to the first answer, eight more actors, and an idle one's memory."""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator

from mooactor.cli.bench.measure import Effort
from mooactor.cli.bench.row import Goal, Row, Skipped

NAMES = ("start.bare", "start.torch", "start.eight", "start.memory")

PROGRAM = """
import json, time
began = time.perf_counter()
{imports}
imported = time.perf_counter() - began
import os
import mooactor as moo

@moo.actor
class Hello:
    def process(self) -> int:
        return os.getpid()

def private_bytes(process: int) -> int:
    with open(f"/proc/{{process}}/smaps_rollup") as lines:
        return sum(int(l.split()[1]) << 10 for l in lines if l.startswith("Private_"))

with moo.init():
    first = moo.spawn(Hello)
    process = first.process()
    cold = time.perf_counter() - began
    began = time.perf_counter()
    group = moo.on(Hello).group(8)
    group.call(Hello.process).get()
    eight = time.perf_counter() - began
    memory = private_bytes(process)
print(json.dumps(dict(imported=imported, cold=cold, eight=eight, memory=memory)))
"""


def rows(effort: Effort) -> Iterator[Row | Skipped]:
    """Each figure comes from fresh interpreters, without and with torch in turn."""
    programs = ["", "import torch"] if importlib.util.find_spec("torch") else [""]
    found: dict[str, list[dict[str, float]]] = {imports: [] for imports in programs}
    for _ in range(effort.rounds):
        for imports in programs:
            found[imports].append(_fresh(imports))
    yield _bare(_medians(found[""]))
    if len(programs) == 1:
        yield Skipped("start.torch", "torch is not installed")
        return
    yield from _with_torch(_medians(found["import torch"]))


def _fresh(imports: str) -> dict[str, float]:
    program = PROGRAM.format(imports=imports)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def _medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def _bare(run: dict[str, float]) -> Row:
    work = "import, init, spawn and first call, without torch"
    return Row("start.bare", work, "s", run["cold"], {}, Goal("at most", 0.5))


def _with_torch(run: dict[str, float]) -> Iterator[Row]:
    peers = {"import torch": run["imported"]}
    work = "import, init, spawn and first call, with torch"
    goal = Goal("at most", 2 * run["imported"] + 0.3)
    yield Row("start.torch", work, "s", run["cold"], peers, goal)
    work = "8 more actors, torch loaded"
    yield Row("start.eight", work, "s", run["eight"], {}, Goal("at most", 0.1))
    work = "private memory of an idle actor, torch loaded (USS)"
    megabytes = run["memory"] / 1e6
    yield Row("start.memory", work, "MB", megabytes, {}, Goal("at most", 15))
