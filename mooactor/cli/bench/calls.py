# SPDX-License-Identifier: MIT
"""Empty calls: how long one takes, and how many there are in a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import mooactor as moo
from mooactor.cli.bench import pyzmq
from mooactor.cli.bench.measure import (
    Effort,
    busy_core,
    median_seconds,
    rate,
    turn_about,
)
from mooactor.cli.bench.row import Goal, Row

NAMES = ("call.idle", "call.busy", "call.rate")
PEER = "raw pyzmq"


@moo.actor
class Echo:
    """Does nothing, which is what is measured."""

    @moo.method(read_only=True)
    def ping(self) -> None:
        return None


def rows(effort: Effort) -> Iterator[Row]:
    """Blocking calls on an idle and on a busy machine, then pipelined ones."""
    with moo.init(), pyzmq.echo() as peer:
        echo = moo.spawn(Echo)
        work = "empty call, blocking, p50"
        yield _latency(effort, echo, peer, "call.idle", work, 0.75)
        with busy_core():
            busy = f"{work}, one core busy"
            yield _latency(effort, echo, peer, "call.busy", busy, 1.3)
        yield _rate(effort, echo, peer)


def _latency(
    effort: Effort, echo: Echo, peer: pyzmq.Echo, name: str, work: str, bound: float
) -> Row:
    repeats = effort.repeats(500)

    def timed(call: Callable[[], None]) -> Callable[[], float]:
        return lambda: median_seconds(call, repeats) * 1e6

    ours, floor = turn_about(effort.rounds, timed(echo.ping), timed(peer.ping))
    return Row(name, work, "µs", ours, {PEER: floor}, Goal("at most", bound, PEER))


def _rate(effort: Effort, echo: Echo, peer: pyzmq.Echo) -> Row:
    count = effort.repeats(10_000)

    def pipelined(calls: int) -> None:
        moo.get([echo.ping.remote() for _ in range(calls)])

    ours, floor = turn_about(
        effort.rounds,
        lambda: rate(pipelined, count),
        lambda: rate(peer.ping_many, count),
    )
    work = "pipelined calls, one caller, one actor"
    goal = Goal("at least", 1.5, PEER)
    return Row("call.rate", work, "calls/s", ours, {PEER: floor}, goal)
