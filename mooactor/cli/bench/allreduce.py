# SPDX-License-Identifier: MIT
"""Learner groups beside torch.distributed with gloo: the same tensors, turn about.

Both kinds of ranks are actors, so that the same program can start and time them; an
operation's time is that of its slowest rank.
"""

from __future__ import annotations

import importlib.util
import statistics
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mooactor as moo
from mooactor.cli.bench.measure import Effort, turn_about
from mooactor.cli.bench.row import Goal, Row, Skipped

NAMES = ("allreduce.2", "allreduce.4")
SIZES_KB = (64, 1024, 16 << 10, 64 << 10)
PEER = "gloo"


class Rank(ABC):
    """One rank: joins, and times sums of one tensor."""

    @abstractmethod
    def join(self, where: str, rank: int, ranks: int) -> None:
        """Become one of `ranks`; returns when all are there."""

    @abstractmethod
    def barrier(self) -> None:
        """Wait for all."""

    @abstractmethod
    def reduce(self, tensor: Any) -> None:
        """Sum it over all ranks, in place."""

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


@moo.actor
class OurRank(Rank):
    """A member of a learner group."""

    def join(self, where: str, rank: int, ranks: int) -> None:
        _one_thread()
        self._group = moo.LearnerGroup(f"bench-{ranks}", min_size=ranks)

    def barrier(self) -> None:
        self._group.barrier()

    def reduce(self, tensor: Any) -> None:
        self._group.allreduce([tensor], op="sum").wait()


@moo.actor
class GlooRank(Rank):
    """A rank of torch.distributed."""

    def join(self, where: str, rank: int, ranks: int) -> None:
        import torch.distributed

        _one_thread()
        self._distributed = torch.distributed
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{where}", rank=rank, world_size=ranks
        )

    def barrier(self) -> None:
        self._distributed.barrier()

    def reduce(self, tensor: Any) -> None:
        self._distributed.all_reduce(tensor)


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def rows(effort: Effort) -> Iterator[Row | Skipped]:
    """2 and 4 ranks, four sizes each."""
    if importlib.util.find_spec("torch") is None:
        yield Skipped("allreduce", "torch is not installed, and gloo comes with it")
        return
    import torch  # before init: actors then start with it loaded

    assert torch.distributed.is_gloo_available()
    with moo.init():
        for ranks in (2, 4):
            yield from _of(ranks, effort)


def _of(ranks: int, effort: Effort) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        where = str(Path(folder) / "gloo")
        ours, gloo = moo.on(OurRank).group(ranks), moo.on(GlooRank).group(ranks)
        for group in (ours, gloo):
            _join(group, where, ranks)
        for kilobytes in SIZES_KB:
            yield _row(effort, ours, gloo, kilobytes)
        for member in (*ours, *gloo):
            moo.kill(member)


def _join(group: moo.Group[Any], where: str, ranks: int) -> None:
    group.call_each(Rank.join, [(where, rank, ranks) for rank in range(ranks)]).get()


def _row(
    effort: Effort, ours: moo.Group[Any], gloo: moo.Group[Any], kilobytes: int
) -> Row:
    repeats = effort.repeats(20 if kilobytes <= 1024 else 6)

    def timed(group: moo.Group[Any]) -> float:
        by_rank: list[list[float]] = group.call(Rank.spent, kilobytes, repeats).get()
        slowest: list[float] = [max(times) for times in zip(*by_rank, strict=True)]
        return statistics.median(slowest) * 1e3

    spent, peer = turn_about(effort.rounds, lambda: timed(ours), lambda: timed(gloo))
    size = f"{kilobytes} KB" if kilobytes < 1024 else f"{kilobytes >> 10} MB"
    work = f"allreduce of {size}, {len(ours)} processes"
    goal = Goal("at most", 1 / 3, PEER)
    return Row(f"allreduce.{len(ours)}", work, "ms", spent, {PEER: peer}, goal)
