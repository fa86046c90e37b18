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

import math
import statistics
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

import mooactor as moo

MEMBERS = 3


class Row(NamedTuple):
    """A step: when it ended, its time, and the processor time used on the machine."""

    at: float
    seconds: float
    busy_s: float
    full: bool  # all members are there
    fetches: bool  # somebody does


class Member:
    def join(self, name: str, megabytes: int) -> float:
        """When this began."""
        began = time.monotonic()
        torch.set_num_threads(1)
        self.model = nn.Linear(1024, 1024)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        state = np.zeros(megabytes << 20, np.uint8)
        self.accumulator = moo.Accumulator(
            moo.LearnerGroup(name, min_size=1, on_loss="finish"),
            self.model,
            optimizer,
            batch=1,
            check_every=10**9,
            get_state=lambda: state,
            set_state=lambda _: None,
        )
        return began

    def train(self, step_s: float, lost: int, more_s: float) -> list[Row]:
        """Until there have been `lost` members fewer than `MEMBERS`, then as many, all
        with the state; and for `more_s` from then on."""
        rows: list[Row] = []
        least, ends = MEMBERS, math.inf
        for step in self.accumulator:
            now, fetches = time.monotonic(), bool(self.accumulator.stats()["fetching"])
            size = self.accumulator.group.size
            last = rows[-1].at if rows else now
            rows.append(Row(now, now - last, busy_s(), size == MEMBERS, fetches))
            least = min(least, size)
            if least <= MEMBERS - lost and rows[-1].full and not fetches:
                ends = min(ends, now + more_s)
            if now > ends:
                break
            time.sleep(step_s)
            step.add(self.model(torch.ones(1, 1024)).sum(), count=1)
        return rows

    def leave(self) -> None:
        self.accumulator.group.leave()


def busy_s() -> float:
    """Seconds of processor time that all of the machine has used."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    user, nice, system, _idle, _wait, irq, soft, steal = map(int, words[1:9])
    return (user + nice + system + irq + soft + steal) / 100


def cores(rows: list[Row]) -> float:
    return (rows[-1].busy_s - rows[0].busy_s) / (rows[-1].at - rows[0].at)


def main(megabytes: int = 1024, step_ms: int = 20) -> None:
    name, step_s = "bench-joins", step_ms / 1e3
    with moo.init():
        on = moo.on(Member, num_cpus=0)
        members = [on.spawn() for _ in range(MEMBERS)]
        for one in members:
            one.join.tell(name, megabytes)
        # Both at once, as the others wait for one that is between two calls.
        warm = [one.train.remote(step_s, 0, 5.0) for one in members]
        training = [one.train.remote(step_s, 1, 2.0) for one in members]
        rows = [Row(*row) for row in moo.get(warm)[0][1:]]
        time.sleep(1.0)  # they train
        killed = time.monotonic()
        moo.kill(members[2])
        replacement = on.spawn()
        began = replacement.join.remote(name, megabytes)
        came = replacement.train.remote(step_s, 0, 1.0)
        for one in (replacement, *members[:2]):
            one.leave.tell()
        began_at, arrived = began.get(), came.get()[0][0]
        rows += [Row(*row) for row in training[0].get()[1:]]
    before = [row for row in rows if row.at < killed and row.full and not row.fetches]
    during = [row for row in rows if row.fetches and row.at > killed]
    after = [row for row in rows if killed < row.at < arrived + 1.0]
    usual = statistics.median(row.seconds for row in before)
    slow = [s * 1e3 for s in sorted((row.seconds for row in after), reverse=True)[:3]]
    lost = (after[-1].at - before[-1].at) / usual - len(after)
    print(
        f"{megabytes} MB of state, steps of {usual * 1e3:.1f} ms ({len(before)} before)"
    )
    print(f"first step of the replacement: {arrived - began_at:.2f} s after its start")
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
