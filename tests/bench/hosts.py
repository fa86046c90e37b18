# SPDX-License-Identifier: MIT
"""Calls and spawns between hosts, beside raw pyzmq over TCP with CURVE.

The hosts are those of `tests.bench.between`. The drivers run on the near one: one in a
session of that cluster, one in a session of its own. This process gives them commands,
by lines on their pipes.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import mooactor as moo
from mooactor.cli.bench.calls import Echo
from mooactor.cli.bench.measure import (
    Effort,
    calls,
    median_seconds,
    placements,
    rate,
    turn_about,
)
from mooactor.cli.bench.report import Goal, Row, Skipped
from tests.bench import pyzmq
from tests.bench.between import FAR, NEAR, Pair, Side, answer, cluster, why_not

NAMES = ("hosts.call", "hosts.rate", "hosts.spawn", "hosts.local")
PEER = pyzmq.ZMQ
ALONE = "without broker"
_PORT = 5555


def rows(effort: Effort) -> Iterator[Row | Skipped]:
    """From the near host to the far one, and on the near one."""
    if why := why_not():
        yield Skipped("hosts", why)
        return
    with cluster() as made, ExitStack() as stack:
        yield from _rows(effort, made, stack)


def _rows(effort: Effort, made: Pair, stack: ExitStack) -> Iterator[Row]:
    peer = f"tcp://{made.network.address(FAR)}:{_PORT}"
    server = made.started(FAR, "-m", "tests.bench.pyzmq", peer, "curve")
    stack.enter_context(server)
    joined = stack.enter_context(made.driver(__name__, made.address, peer))
    # many short turns: what else the machine does falls on both alike
    rounds, few = 3 * effort.rounds, effort.repeats(200)
    pings = _by_turns(rounds, f"ping {few}", f"ping_peer {few}", joined, joined)
    yield _times("hosts.call", "empty call to another host, p50", pings, PEER, 0.9)
    many = effort.repeats(5000)
    found = _by_turns(rounds, f"rate {many}", f"rate_peer {many}", joined, joined)
    yield _rate(found)
    spawns = effort.repeats(10)
    spawned, far = _by_turns(rounds, f"spawn {spawns}", f"ping {few}", joined, joined)
    yield _spawn(spawned - far)
    local = _local(effort, made, peer, f"local {few}")
    work = "empty call on the same host, in a session with a broker, p50"
    yield _times("hosts.local", work, local, ALONE, 1.05)


def _local(effort: Effort, made: Pair, peer: str, ask: str) -> list[float]:
    """The middle one of several pairs of sessions, by its ratio: one of a pair is some
    percent slower than the other for as long as both live, by chance."""
    pairs = []
    for _ in range(effort.rounds // 2 | 1):
        with (
            made.driver(__name__, made.address, peer) as joined,
            made.driver(__name__) as alone,
        ):
            pairs.append(_by_turns(effort.rounds, ask, ask, joined, alone))
    pairs.sort(key=lambda pair: pair[0] / pair[1])
    return pairs[len(pairs) // 2]


def _by_turns(
    rounds: int, ours: str, other: str, driver: Side, beside: Side
) -> list[float]:
    return turn_about(
        rounds, lambda: float(driver.ask(ours)), lambda: float(beside.ask(other))
    )


def _times(name: str, work: str, found: list[float], peer: str, bound: float) -> Row:
    ours, other = (seconds * 1e6 for seconds in found)
    return Row(name, work, "µs", ours, {peer: other}, Goal("at most", bound, peer))


def _rate(found: list[float]) -> Row:
    ours, peer = found
    work = "pipelined calls to another host, one caller, one actor"
    goal = Goal("at least", 1.5, PEER)
    return Row("hosts.rate", work, "calls/s", ours, {PEER: peer}, goal)


def _spawn(seconds: float) -> Row:
    work = "spawn on a warm host, until its first answer, less a call"
    return Row("hosts.spawn", work, "ms", seconds * 1e3, {}, Goal("at most", 20))


# -- the drivers ------------------------------------------------------------------


def serve(address: str = "", peer: str = "") -> None:
    """Be a driver, and measure what each line says, until killed."""
    # A warm host has imported what its actors need.
    preload = [Echo.__module__]
    with moo.init(address or None, preload=preload), ExitStack() as stack:
        near = moo.on(Echo, host=NEAR).spawn() if address else moo.spawn(Echo)
        works = {"local": _placed_pings(near)}
        if address:
            far = moo.on(Echo, host=FAR).spawn()
            floor = stack.enter_context(pyzmq.connected(peer, is_curved=True))
            works |= {
                "ping": _pings(far),
                "rate": lambda count: rate(lambda some: _pipelined(far, some), count),
                "ping_peer": lambda count: median_seconds(floor.ping, count),
                "rate_peer": lambda count: rate(floor.ping_many, count),
                "spawn": lambda repeats: statistics.median(
                    _spawned() for _ in range(repeats)
                ),
            }
        answer(works)


def _pings(echo: Echo) -> Callable[[int], float]:
    return lambda count: median_seconds(echo.ping, count)


def _placed_pings(echo: Echo) -> Callable[[int], float]:
    """Where the kernel would put both ends by chance, differently for each session."""
    pid = echo.pid()
    return lambda count: statistics.fmean(
        calls(echo.ping, count, pid, place)[0] for place in placements()
    )


def _pipelined(echo: Echo, calls: int) -> None:
    moo.get([echo.ping.remote() for _ in range(calls)])


def _spawned() -> float:
    """Seconds until a new actor on the far host has answered; then it ends."""
    began = time.perf_counter()
    made = moo.on(Echo, host=FAR).spawn()
    made.ping()
    took = time.perf_counter() - began
    moo.kill(made)
    return took


if __name__ == "__main__":
    serve(*sys.argv[1:])
