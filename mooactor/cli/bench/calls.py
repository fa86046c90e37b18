# SPDX-License-Identifier: MIT
"""Empty calls: the time of one, and the number in a second."""

from __future__ import annotations

import os
from collections.abc import Iterator

import mooactor as moo
from mooactor.cli.bench import pyzmq
from mooactor.cli.bench.measure import (
    ANYWHERE,
    Calls,
    Effort,
    Placement,
    busy_loops,
    calls,
    calls_turn_about,
    mean_of_calls,
    placements,
    rate,
    turn_about,
)
from mooactor.cli.bench.row import Goal, Row
from mooactor.tensors.limits import processors

PEER = "raw pyzmq"
# Half of the cores, all of them, and each one twice.
_CORES = processors()
LOOPS = sorted({max(1, _CORES // 2), _CORES, 2 * _CORES})
# The figures, and their bounds relative to the peer.
IDLE = {"p50": 0.6, "processor": 1.5}
BUSY = {"mean": 1.3, "p99": 1.5, "processor": 1.5}
WORDS = {
    "p50": "blocking, p50",
    "mean": "blocking, mean",
    "p99": "blocking, p99",
    "processor": "processor time at both ends",
}
NAMES = (
    *(f"call.idle.{figure}" for figure in IDLE),
    *(f"call.busy{loops}.{figure}" for loops in LOOPS for figure in BUSY),
    "call.rate",
)


@moo.actor
class Echo:
    """Does nothing: the call itself is measured."""

    @moo.method(read_only=True)
    def ping(self) -> None:
        return None

    @moo.method(read_only=True)
    def pid(self) -> int:
        return os.getpid()


def rows(effort: Effort) -> Iterator[Row]:
    """Blocking calls on an idle machine and beside busy loops, then pipelined ones."""
    with moo.init(), pyzmq.echo() as peer:
        echo = moo.spawn(Echo)
        yield from _blocking(effort, echo, peer, 0)
        for loops in LOOPS:
            with busy_loops(loops):
                yield from _blocking(effort, echo, peer, loops)
        yield _rate(effort, echo, peer)


def _blocking(
    effort: Effort, echo: Echo, peer: pyzmq.Echo, loops: int
) -> Iterator[Row]:
    repeats, actor = effort.repeats(500), echo.pid()

    def by_turns(place: Placement) -> list[Calls]:
        return calls_turn_about(
            effort.rounds,
            lambda: calls(echo.ping, repeats, actor, place),
            lambda: calls(peer.ping, repeats, peer.pid, place),
        )

    found = map(by_turns, placements() if loops else [ANYWHERE])
    ours, floor = (mean_of_calls(each) for each in zip(*found, strict=True))
    for figure, bound in (BUSY if loops else IDLE).items():
        name, work = "call.idle", f"empty call, {WORDS[figure]}"
        if loops:
            name = f"call.busy{loops}"
            work += f", {loops} busy loop{'s' * (loops > 1)}"
        yield Row(
            f"{name}.{figure}",
            work,
            "µs",
            getattr(ours, figure) * 1e6,
            {PEER: getattr(floor, figure) * 1e6},
            Goal("at most", bound, PEER),
        )


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
