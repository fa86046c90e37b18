# SPDX-License-Identifier: MIT
"""The actor that the tests of learner groups use: one member, told what to do."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import mooactor as moo
from mooactor.learner import LearnerGroup
from tests.conftest import eventually


def input_of(rank: int, elements: int, dtype: str) -> Any:
    """The input of `rank`: numbers whose sum depends on the order of addition."""
    random = np.random.default_rng(1000 + rank)
    scale = 2.0 ** random.integers(-9, 9, elements)
    return (random.standard_normal(elements) * scale + 3).astype(dtype)


class Member:
    """One member of a learner group, in a process of its own."""

    def __init__(self) -> None:
        self.group: LearnerGroup | None = None

    def join(
        self,
        name: str,
        min_size: int,
        size: int = 0,
        timeout: float = 60.0,
        on_loss: Any = "raise",
    ) -> int:
        """Join, and return when `size` members are in and all of them know it."""
        self.group = LearnerGroup(name, min_size, on_loss=on_loss, timeout=timeout)
        self.barrier_until(size)
        return self.group.rank

    def leave(self) -> None:
        assert self.group is not None
        self.group.leave()

    def state(self) -> tuple[int, int, int]:
        assert self.group is not None
        return self.group.rank, self.group.size, self.group.epoch

    def pid(self) -> int:
        return os.getpid()

    def host(self) -> str:
        """Where it is, in a cluster of tests.clusters."""
        return os.environ["MOOACTOR_HOST_ID"]

    def ask(self, name: str) -> Any:
        """An attribute of the group, called if it can be."""
        found = getattr(self.group, name)
        return found() if callable(found) else found

    def barrier(self) -> None:
        assert self.group is not None
        self.group.barrier()

    def barrier_until(self, size: int) -> None:
        """Until so many members are in, and all of them know it."""
        assert self.group is not None
        seen = 0
        while seen < size:
            seen = self.group.size
            self.group.barrier()

    def reduce(self, elements: list[int], dtype: str, op: Any) -> list[bytes]:
        """The bytes of each result."""
        assert self.group is not None
        inputs = [input_of(self.group.rank, n, dtype) for n in elements]
        self.group.allreduce(inputs, op=op).wait()
        return [array.tobytes() for array in inputs]

    def run(self, function: Any, *args: Any) -> Any:
        """Any act of a test's: ``function(group, *args)``."""
        return function(self.group, *args)

    def reduce_often(self, elements: int, times: int) -> list[float]:
        """The first element of each result."""
        assert self.group is not None
        seen = []
        for _ in range(times):
            array = np.ones(elements, np.float32)
            self.group.allreduce(array, op="sum").wait()
            seen.append(float(array[0]))
        return seen

    def reduce_while(self, more: int, elements: int) -> list[tuple[float, list[int]]]:
        """Sums of ones, and the process ids of those that took part, until `more`
        have come after the group has shrunk."""
        assert self.group is not None
        seen: list[tuple[float, list[int]]] = []
        size = self.group.size
        while more:
            array = np.ones(elements, np.float32)
            work = self.group.allreduce(array, op="sum")
            work.wait()
            assert (array == array[0]).all()
            ids = [member.process_id for member in work.participants]
            seen.append((float(array[0]), ids))
            more -= len(ids) < size
        return seen

    def reduce_until_lost(self, elements: int) -> tuple[int, int, int]:
        """How many reductions succeeded, and which rank died when."""
        assert self.group is not None
        for count in itertools.count():
            try:
                self.reduce_often(elements, 1)
            except moo.PeerLost as lost:
                return count, lost.rank, lost.epoch
        raise AssertionError


_numbers = itertools.count()
Placed = Callable[..., moo.Group[Any]]


@contextlib.contextmanager
def placed() -> Iterator[Placed]:
    """``make("abd", min_size=3)``: one member on each of these hosts of the session, in
    one group, in rank order. All actors of the session are gone in the end."""

    def make(
        hosts: str,
        min_size: int | None = None,
        timeout: float = 60.0,
        on_loss: str = "raise",
    ) -> moo.Group[Any]:
        made = [moo.on(Member, host=host).spawn() for host in hosts]
        name, size = f"placed-{next(_numbers)}", len(made)
        how = (name, min_size or size, size, timeout, on_loss)
        refs = [one.join.remote(*how) for one in made]  # type: ignore[attr-defined]
        ranks = moo.get(refs, timeout=60.0)
        return moo.Group([made[ranks.index(rank)] for rank in range(size)])

    try:
        yield make
    finally:
        for actor in moo.actors():
            with contextlib.suppress(moo.ActorUnavailable):
                moo.kill(actor.handle)
        assert eventually(lambda: moo.actors() == [])
