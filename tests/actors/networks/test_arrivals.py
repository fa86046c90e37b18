# SPDX-License-Identifier: MIT
"""Data that is under way for long: what goes on meanwhile, and how it ends.

A process that is stopped in mid transfer (SIGSTOP) stands for a slow network: what it
was sending stays under way until it goes on, or is killed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.process.current import current_runtime
from tests.conftest import eventually
from tests.processes import stop

BIG = 256 << 20
SOME = 1 << 20
PATIENCE_S = 30.0


@moo.actor
class Peer:
    def __init__(self) -> None:
        self.seen: list[int] = []

    def pid(self) -> int:
        return os.getpid()

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

    def mixed(self, n: int) -> Iterator[Any]:
        for i in range(n):
            yield np.full(SOME if i % 2 else 4, i, np.uint8)


def arriving() -> int:
    current_runtime().poller.try_drain()
    return int(moo.stats()["arriving"])


def nothing_left() -> bool:
    busy = arriving() or moo.stats()["calls_pending"]
    return not (busy or moo.stats()["memory"]["fetches"])


@contextmanager
def under_way(pid: int, start: Callable[[], Any]) -> Iterator[Any]:
    """Within it, what `start` has begun is under way, from the process `pid`, which is
    stopped."""
    for _ in range(10):
        started = start()
        assert eventually(arriving, PATIENCE_S)
        stop(pid)
        try:
            if arriving():  # it had not just come
                yield started
                return
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    pytest.fail("every transfer was over at once")


@pytest.fixture
def source(spawn: Callable[..., Any]) -> Any:
    return spawn(Peer)


@pytest.fixture
def pid(source: Any) -> int:
    return int(source.pid())


@pytest.fixture
def big_result(source: Any, pid: int) -> Iterator[Any]:
    """A Ref whose data is under way; its producer is stopped."""
    with under_way(pid, lambda: source.make.remote(BIG, 7)) as ref:
        assert not ref.done()
        yield ref


# -- what goes on meanwhile ------------------------------------------------


def test_small_calls_to_the_same_actor_overtake_a_large_result(source):
    ref = source.make.remote(BIG)
    overtook = 0
    while source.echo(1) and not ref.done():
        overtook += 1
    assert overtook > 0
    assert ref.get().nbytes == BIG


def test_calls_and_items_keep_their_order_whatever_they_carry(source):
    sizes = [SOME, 1, 64 * SOME, 2, SOME, 3]
    refs = [source.take.remote(np.ones(size, np.uint8)) for size in sizes]
    assert moo.get(refs) == [1] * len(sizes)
    assert source.sizes() == sizes
    got = [(len(item), int(item[0])) for item in source.mixed(40)]
    assert got == [(SOME if i % 2 else 4, i) for i in range(40)]
    assert eventually(nothing_left)


# -- how it ends -----------------------------------------------------------


def test_a_cancelled_call_ends_its_transfer(big_result):
    assert big_result.cancel()
    assert eventually(nothing_left)


def test_a_killed_producer_fails_the_call_with_its_cause(big_result, source, pid):
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(moo.ActorDied) as caught:
        big_result.get(PATIENCE_S)
    assert caught.value.delivered is True
    assert caught.value.cause is not None and caught.value.cause.signal == 9
    assert eventually(nothing_left)


# -- what is told of it ----------------------------------------------------


def test_stats_say_what_goes_by_what(source, transport):
    before = {row["process"]: row for row in moo.stats()["peers"]}
    source.echo(np.ones(SOME, np.uint8))
    rows = {row["process"]: row for row in moo.stats()["peers"]}
    (row,) = [r for r in rows.values() if r != before.get(r["process"])]
    assert (row["actor"], row["transport"]) == ("Peer", transport)
    assert transport in row["why"]
    assert row["bytes_sent"] >= SOME
    assert row["bytes_fetched"] >= SOME
    assert moo.stats()["transport"] == transport
