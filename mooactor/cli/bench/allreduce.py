# SPDX-License-Identifier: MIT
"""Learner groups beside torch.distributed with gloo: the same tensors, turn about.

The ranks of both are actors. An operation's time is that of its slowest rank.
"""

import importlib.util
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import mooactor as moo
from mooactor.cli.bench.measure import Effort, turn_about
from mooactor.cli.bench.report import Goal, Row, Skipped

NAMES = ("allreduce.2", "allreduce.4")
SIZES_KB = (64, 1024, 16 << 10, 64 << 10)
PEER = "gloo"


@moo.actor
class Rank:
    """One rank of a group of a kind; times sums of one tensor over all of them."""

    def join(self, where: str | None, rank: int, ranks: int) -> None:
        """Become a rank of gloo, which meets at a file, or else of a learner group."""
        import torch.distributed

        torch.set_num_threads(1)
        if where is None:
            group = moo.LearnerGroup(f"bench-{ranks}", min_size=ranks)
            self.barrier: Callable[[], object] = group.barrier
            self.reduce: Callable[[Any], Any] = lambda t: group.allreduce([t]).wait()
        else:
            torch.distributed.init_process_group(
                "gloo", init_method=f"file://{where}", rank=rank, world_size=ranks
            )
            self.barrier = torch.distributed.barrier
            self.reduce = torch.distributed.all_reduce

    def spent(self, kilobytes: int, repeats: int) -> list[float]:
        """Seconds of each of `repeats` sums."""
        import torch

        tensor = torch.ones(kilobytes << 8)
        times = []
        for _ in range(repeats):
            self.barrier()
            began = time.perf_counter()
            self.reduce(tensor)
            times.append(time.perf_counter() - began)
            tensor.fill_(1)
        return times


def rows(effort: Effort) -> Iterator[Row | Skipped]:
    """2 and 4 ranks, four sizes each."""
    if importlib.util.find_spec("torch") is None:
        yield Skipped("allreduce", "torch is not installed, and gloo comes with it")
        return
    import torch  # noqa: F401  before init: actors then start with it loaded

    with moo.init(), tempfile.TemporaryDirectory() as folder:
        for ranks in (2, 4):
            groups = []
            for where in (None, str(Path(folder) / f"gloo-{ranks}")):
                groups.append(moo.on(Rank).group(ranks))
                places = [(where, rank, ranks) for rank in range(ranks)]
                groups[-1].call_each(Rank.join, places).get()
            for kilobytes in SIZES_KB:
                yield _row(effort, kilobytes, *groups)
            for rank in (*groups[0], *groups[1]):
                moo.kill(rank)


def _row(
    effort: Effort, kilobytes: int, ours: moo.Group[Rank], gloo: moo.Group[Rank]
) -> Row:
    repeats = effort.repeats(20 if kilobytes <= 1024 else 6)

    def timed(group: moo.Group[Rank]) -> float:
        by_rank = group.call(Rank.spent, kilobytes, repeats).get()
        return float(np.median(np.max(by_rank, axis=0))) * 1e3

    spent, peer = turn_about(effort.rounds, lambda: timed(ours), lambda: timed(gloo))
    size = f"{kilobytes} KB" if kilobytes < 1024 else f"{kilobytes >> 10} MB"
    work = f"allreduce of {size}, {len(ours)} processes"
    goal = Goal("at most", 1 / 3, PEER)
    return Row(f"allreduce.{len(ours)}", work, "ms", spent, {PEER: peer}, goal)
