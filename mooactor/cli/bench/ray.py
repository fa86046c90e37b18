# SPDX-License-Identifier: MIT
"""Ray, if it is installed: the same work, added to the rows as one more peer.

It runs in a process of its own (``python -m mooactor.cli.bench.ray``) and only after
ours is done: its daemons would disturb every other row.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

from mooactor.cli.bench.measure import THOROUGH, median_seconds, rate, turn_about
from mooactor.cli.bench.row import Row

PEER = "Ray"


def beside(rows: list[Row]) -> list[Row]:
    """The rows with Ray's figures in them, if it is installed and any row has one."""
    if not rows or importlib.util.find_spec("ray") is None:
        return rows
    print("measuring Ray …", file=sys.stderr, flush=True)
    found = _measured()
    return [
        replace(row, peers=row.peers | {PEER: found[row.work]})
        if row.work in found
        else row
        for row in rows
    ]


def _measured() -> dict[str, float]:
    command = [sys.executable, "-m", "mooactor.cli.bench.ray"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    found: dict[str, float] = json.loads(lines[-1]) if lines else {}
    return found


def main() -> None:
    """Measure, and print one JSON object: the figure for each row's `work`."""
    began = time.perf_counter()
    import ray

    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")

    class Echo:
        def ping(self) -> None:
            return None

        def size_of(self, values: Any) -> tuple[float, int]:
            return float(values[0]), int(values.nbytes)

    remote = ray.remote(num_cpus=0)(Echo)
    actor = remote.remote()
    ray.get(actor.ping.remote())
    cold = time.perf_counter() - began
    began = time.perf_counter()
    more = [remote.remote() for _ in range(8)]
    ray.get([one.ping.remote() for one in more])
    eight = time.perf_counter() - began
    del more
    found = {
        "import, init, spawn and first call, without torch": cold,
        "8 more actors, torch loaded": eight,
        **_calls(ray, actor),
        **_arrays(ray, actor),
    }
    ray.shutdown()
    print(json.dumps(found))


def _calls(ray: Any, actor: Any) -> dict[str, float]:
    def pipelined(count: int) -> None:
        ray.get([actor.ping.remote() for _ in range(count)])

    latency, calls = turn_about(
        THOROUGH.rounds,
        lambda: median_seconds(lambda: ray.get(actor.ping.remote()), 200) * 1e6,
        lambda: rate(pipelined, 3000),
    )
    return {
        "empty call, blocking, p50": latency,
        "pipelined calls, one caller, one actor": calls,
    }


def _arrays(ray: Any, actor: Any) -> dict[str, float]:
    import numpy as np

    found = {}
    for megabytes in (1, 64):
        values = np.random.default_rng(0).random((megabytes << 20) // 8)
        gigabytes = values.nbytes / 1e9
        seconds = median_seconds(lambda: ray.get(actor.size_of.remote(values)), 12)  # noqa: B023
        found[f"{megabytes} MB numpy argument"] = gigabytes / seconds
    return found


if __name__ == "__main__":
    main()
