# SPDX-License-Identifier: MIT
"""A member of an Accumulator's group is killed, and its replacement fetches the state.

`python -m tests.bench.joins [MEGABYTES] [STEP_MS]` prints, for so much state:

* the time from the replacement's first statement to its first contribution,
* the steps of the others before and during the fetch: their median and the longest,
  and how much of the machine's processor time was used,
* how many steps the others lost by all of it.

A step waits as for a GPU, and averages 4 MB of gradients, so on a machine with few
cores the fetch competes for them with the averaging only. All are on one host.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

import mooactor as moo


class Row(NamedTuple):
    """A step: when it ended, its time, and the processor time used on the machine."""

    at: float
    seconds: float
    busy_s: float
    fetches: bool  # somebody does


class Member:
    def train(self, name: str, megabytes: int, step_s: float, until_s: float) -> Any:
        """When this began, when it had the state, and the rows until then."""
        began = time.monotonic()
        torch.set_num_threads(1)
        model = nn.Linear(1024, 1024)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        state = np.zeros(megabytes << 20, np.uint8)
        accumulator = moo.Accumulator(
            moo.LearnerGroup(name, min_size=1, on_loss="finish"),
            model,
            optimizer,
            batch=1,
            check_every=10**9,
            get_state=lambda: state,
            set_state=lambda _: None,
        )
        rows: list[Row] = []
        for step in accumulator:
            now, fetches = time.monotonic(), bool(accumulator.stats()["fetching"])
            last = rows[-1] if rows else Row(now, 0.0, busy_s(), False)
            rows.append(Row(now, now - last.at, busy_s(), fetches))
            if now > until_s:
                break
            time.sleep(step_s)
            step.add(model(torch.ones(1, 1024)).sum(), count=1)
        accumulator.group.leave()
        return began, rows[0].at, rows


def busy_s() -> float:
    """Seconds of processor time that all of the machine has used."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    user, nice, system, _idle, _wait, irq, soft, steal = map(int, words[1:9])
    return (user + nice + system + irq + soft + steal) / 100


def cores(rows: list[Row]) -> float:
    return (rows[-1].busy_s - rows[0].busy_s) / (rows[-1].at - rows[0].at)


def main(megabytes: int = 1024, step_ms: int = 20) -> None:
    with moo.init():
        members = [moo.on(Member, num_cpus=0).spawn() for _ in range(3)]
        warm_s = 8.0 + megabytes / 64
        until_s = time.monotonic() + warm_s + 8.0
        call = "bench-joins", megabytes, step_ms / 1e3, until_s
        training = [one.train.remote(*call) for one in members]
        time.sleep(warm_s)
        killed = time.monotonic()
        moo.kill(members[2])
        replacement = moo.on(Member, num_cpus=0).spawn()
        came = replacement.train.remote(*call)
        rows = [Row(*row) for row in training[0].get()[2]][10:]
        began, arrived, _ = came.get()
    before = [row for row in rows if row.at < killed]
    during = [row for row in rows if row.fetches and row.at > killed]
    after = [row for row in rows if killed < row.at < arrived + 1.0]
    usual = statistics.median(row.seconds for row in before)
    slow = [s * 1e3 for s in sorted((row.seconds for row in after), reverse=True)[:3]]
    lost = (after[-1].at - before[-1].at) / usual - len(after)
    print(
        f"{megabytes} MB of state, steps of {usual * 1e3:.1f} ms ({len(before)} before)"
    )
    print(f"first step of the replacement: {arrived - began:.2f} s after its start")
    ratio = statistics.median(row.seconds for row in during) / usual
    print(f"steps during the fetch: {len(during)}, median {ratio:.3f} of those before")
    print(
        f"longest: {', '.join(f'{ms:.0f}' for ms in slow)} ms; lost in all: {lost:.1f}"
    )
    print(
        f"busy cores: {cores(before):.2f} before, {cores(during):.2f} during the fetch"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
