# SPDX-License-Identifier: MIT
"""Empty calls: the time of one, and the number in a second."""

import os
from collections.abc import Iterator

import numpy as np

import mooactor as moo
from mooactor.cli.bench import measure, peers
from mooactor.cli.bench.measure import Effort
from mooactor.cli.bench.report import Goal, Row
from mooactor.tensors.limits import processors

PEER = peers.ZMQ
# Half of the cores, all of them, and each one twice.
LOOPS = sorted({max(1, processors() // 2), processors(), 2 * processors()})
# The figures, and their bounds relative to the peer.
IDLE = {"p50": 0.6, "processor": 1.5}
BUSY = {"mean": 1.3, "p99": 1.5, "processor": 1.5}
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
    with moo.init(), peers.echo() as peer:
        echo = moo.spawn(Echo)
        for loops in (0, *LOOPS):
            with measure.busy_loops(loops):
                yield from _waited(effort, echo, peer, loops)
        yield _rate(effort, echo, peer)


def _waited(effort: Effort, echo: Echo, peer: peers.Echo, loops: int) -> Iterator[Row]:
    repeats, actor = effort.repeats(500), echo.pid()

    def by_turns(place: measure.Placement) -> list[np.ndarray]:
        return measure.turn_about(
            effort.rounds,
            lambda: measure.calls(echo.ping, repeats, actor, place),
            lambda: measure.calls(peer.ping, repeats, peer.pid, place),
        )

    places = measure.placements() if loops else [measure.ANYWHERE]
    ours, floor = np.mean([by_turns(place) for place in places], axis=0) * 1e6
    group = f"call.busy{loops}" if loops else "call.idle"
    beside = f", {loops} busy loop{'s' * (loops > 1)}" if loops else ""
    for figure, bound in (BUSY if loops else IDLE).items():
        kind = f"blocking, {figure}"
        if figure == "processor":
            kind = "processor time at both ends"
        at = measure.FIGURES.index(figure)
        found = ours[at], {PEER: floor[at]}, Goal("at most", bound, PEER)
        yield Row(f"{group}.{figure}", f"empty call, {kind}{beside}", "µs", *found)


def _rate(effort: Effort, echo: Echo, peer: peers.Echo) -> Row:
    count = effort.repeats(10_000)

    def pipelined(many: int) -> None:
        moo.get([echo.ping.remote() for _ in range(many)])

    works = (pipelined, peer.ping_many)
    ours, floor = measure.turn_about(
        effort.rounds, *(lambda work=work: measure.rate(work, count) for work in works)
    )
    goal = Goal("at least", 1.5, PEER)
    return Row("call.rate", peers.PIPELINED, "calls/s", ours, {PEER: floor}, goal)
