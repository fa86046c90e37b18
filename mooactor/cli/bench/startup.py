# SPDX-License-Identifier: MIT
"""From nothing to the first answer, eight more actors, and an idle one's memory."""

import importlib.util
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator

from mooactor.cli.bench.measure import Effort
from mooactor.cli.bench.peers import COLD, EIGHT
from mooactor.cli.bench.report import Goal, Row, Skipped

NAMES = ("start.bare", "start.torch", "start.eight", "start.memory")

PROGRAM = """
import json, time
began = time.perf_counter()
IMPORTS
imported = time.perf_counter() - began
import os
import mooactor as moo

@moo.actor
class Hello:
    def process(self) -> int:
        return os.getpid()

with moo.init():
    first = moo.spawn(Hello)
    process = first.process()
    cold = time.perf_counter() - began
    began = time.perf_counter()
    group = moo.on(Hello).group(8)
    group.call(Hello.process).get()
    eight = time.perf_counter() - began
    with open(f"/proc/{process}/smaps_rollup") as lines:
        memory = sum(int(l.split()[1]) << 10 for l in lines if l.startswith("Private_"))
print(json.dumps(dict(imported=imported, cold=cold, eight=eight, memory=memory)))
"""


def rows(effort: Effort) -> Iterator[Row | Skipped]:
    """Each figure comes from fresh interpreters, without and with torch in turn."""
    programs = ["", "import torch"] if importlib.util.find_spec("torch") else [""]
    found = [[_fresh(imports) for imports in programs] for _ in range(effort.rounds)]
    bare, *torch = [
        {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        for runs in zip(*found, strict=True)
    ]
    goal = Goal("at most", 0.5)
    yield Row("start.bare", f"{COLD}, without torch", "s", bare["cold"], {}, goal)
    if not torch:
        yield Skipped("start.torch", "torch is not installed")
        return
    (run,) = torch
    peers = {"import torch": run["imported"]}
    goal = Goal("at most", 2 * run["imported"] + 0.3)
    yield Row("start.torch", f"{COLD}, with torch", "s", run["cold"], peers, goal)
    goal = Goal("at most", 0.1)
    yield Row("start.eight", EIGHT, "s", run["eight"], {}, goal)
    work = "private memory of an idle actor, torch loaded (USS)"
    goal = Goal("at most", 15)
    yield Row("start.memory", work, "MB", run["memory"] / 1e6, {}, goal)


def _fresh(imports: str) -> dict[str, float]:
    command = [sys.executable, "-c", PROGRAM.replace("IMPORTS", imports)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]
