# SPDX-License-Identifier: MIT
"""Actors that send each other data which is under way for long, and how to see it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from tests.conftest import eventually
from tests.processes import stop

BIG = 256 << 20
SOME = 1 << 20
PATIENCE_S = 30.0
#: In seconds: how long a call may still take once its link is cut. It is five, on a
#: machine with nothing else to do; of many waits that add up it would be more.
AT_MOST_S = 8.0


@moo.actor
class Peer:
    def __init__(self) -> None:
        self.seen: list[int] = []

    def pid(self) -> int:
        return os.getpid()

    def process(self) -> str:
        """As `moo.stats` has it."""
        return f"{runtime().process_id:016x}"

    def nap(self, seconds: float) -> None:
        time.sleep(seconds)

    def echo(self, value: Any = None) -> Any:
        return value

    def make(self, nbytes: int, value: int = 1) -> Any:
        made = moo.empty(nbytes, "uint8")
        made[...] = value
        return made

    def take(self, data: Any) -> int:
        self.seen.append(len(data))
        return int(data[0])

    def sizes(self) -> list[int]:
        return self.seen

    def give(self, other: Any, nbytes: int) -> None:
        other.take.tell(self.make(nbytes))

    def hand(self, other: Any, nbytes: int) -> int:
        """Give, and wait for what the other says."""
        return int(other.take(self.make(nbytes)))

    def items(self, n: int, nbytes: int) -> Iterator[Any]:
        for _ in range(n):
            yield self.make(nbytes)

    def read(self, other: Any, n: int, nbytes: int) -> int:
        """The sum of the first elements of what another streams."""
        return sum(int(item[0]) for item in other.items(n, nbytes))

    def mixed(self, n: int) -> Iterator[Any]:
        for i in range(n):
            yield np.full(SOME if i % 2 else 4, i, np.uint8)

    def arriving(self) -> int:
        return int(moo.stats()["arriving"])

    def fetches(self) -> int:
        return int(moo.stats()["memory"]["fetches"])


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    stop(pid)
    try:
        yield
    finally:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass


@contextmanager
def under_way(
    pid: int, start: Callable[[], Any], arriving: Callable[[], int]
) -> Iterator[Any]:
    """Within it, what `start` has begun is under way, from the process `pid`, which is
    stopped."""
    for _ in range(10):
        started = start()
        assert eventually(arriving, PATIENCE_S)
        with stopped(pid):
            if arriving():  # it had not just come
                yield started
                return
    pytest.fail("every transfer was over at once")


def arriving() -> int:
    runtime().poller.try_drain()
    return int(moo.stats()["arriving"])


def runtime() -> Any:
    from mooactor.process.current import current_runtime

    return current_runtime()


def nothing_left() -> bool:
    runtime().poller.try_drain()
    stats = moo.stats()
    busy = stats["arriving"] or stats["calls_pending"] or stats["memory"]["fetches"]
    return not busy
