# SPDX-License-Identifier: MIT
"""The cost of a connection between two processes of different hosts.

A hub on the near host calls some spokes on the far one for the first time. The growth
of their processes, in descriptors and memory, is the cost of the pairs:
each has a connection in both directions. The handshake is that of libzmq alone.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import mooactor as moo
from mooactor.cli.bench.measure import Effort, turn_about
from mooactor.cli.bench.report import Row, Skipped
from tests.bench import pyzmq
from tests.bench.between import FAR, NEAR, Pair, answer, cluster, why_not

NAMES = (
    "hosts.handshake",
    "hosts.first",
    "hosts.descriptors.caller",
    "hosts.descriptors.callee",
    "hosts.memory.caller",
    "hosts.memory.callee",
)
SPOKES = 16
PLAIN = "without CURVE"
WARM = "next call"
_PORTS = {"curve": 5556, "plain": 5557}


def rows(effort: Effort) -> Iterator[Row | Skipped]:
    """The handshake, then the pairs."""
    if why := why_not():
        yield Skipped("hosts.handshake", why)
        return
    with cluster() as made:
        yield _handshake(effort, made)
        yield from _pairs(effort, made)


def _handshake(effort: Effort, made: Pair) -> Row:
    module, address = "tests.bench.pyzmq", made.network.address(FAR)
    at = {kind: f"tcp://{address}:{port}" for kind, port in _PORTS.items()}
    repeats = effort.repeats(30)
    with (
        made.started(FAR, "-m", module, at["curve"], "curve"),
        made.started(FAR, "-m", module, at["plain"]),
        made.driver(__name__, "connect", at["curve"], at["plain"]) as side,
    ):
        found = turn_about(
            3 * effort.rounds,
            lambda: float(side.ask(f"curve {repeats}")),
            lambda: float(side.ask(f"plain {repeats}")),
        )
    ours, plain = (seconds * 1e6 for seconds in found)
    work = "connect with CURVE and call once, raw pyzmq"
    return Row("hosts.handshake", work, "µs", ours, {PLAIN: plain})


def _pairs(effort: Effort, made: Pair) -> Iterator[Row]:
    with made.driver(__name__, "pairs", made.address) as side:
        words = ["first", "next", "fds", "fds_far", "memory", "memory_far"]
        runs = [
            [float(side.ask(f"{word} {SPOKES}")) for word in words]
            for _ in range(effort.rounds)
        ]
    first, again, *more = (
        statistics.median(values) for values in zip(*runs, strict=True)
    )
    work = "the first call between two processes of different hosts"
    yield Row("hosts.first", work, "ms", first * 1e3, {WARM: again * 1e3})
    for end, value in zip(("caller", "callee"), more[:2], strict=True):
        work = f"descriptors of one more pair, at the {end}'s end"
        yield Row(f"hosts.descriptors.{end}", work, "each", value)
    for end, value in zip(("caller", "callee"), more[2:], strict=True):
        work = f"private memory of one more pair, at the {end}'s end"
        yield Row(f"hosts.memory.{end}", work, "kB", value / 1e3)


# -- the processes ----------------------------------------------------------------


@moo.actor
class End:
    """One end of pairs."""

    def ping(self) -> None:
        return None

    def amounts(self) -> tuple[int, int]:
        """Its open descriptors, and the bytes of its private memory."""
        with open("/proc/self/smaps_rollup") as lines:
            private = sum(int(x.split()[1]) for x in lines if x.startswith("Private_"))
        return len(os.listdir("/proc/self/fd")), private << 10

    def call_all(self, others: list[End]) -> float:
        """Call each once, one after the other; the median time."""
        return statistics.median(_timed(other.ping) for other in others)


class Pairs:
    """Measures new pairs each time that "first" is asked for."""

    def __init__(self) -> None:
        self._found: dict[str, float] = {}
        self._hub: End | None = None
        self._spokes: list[End] = []

    def measure(self, count: int) -> float:
        """The time of the first call; other figures are kept for `told`."""
        for old in [*self._spokes, *filter(None, [self._hub])]:
            moo.kill(old)
        hub = self._hub = moo.on(End, host=NEAR).spawn()
        spokes = self._spokes = [moo.on(End, host=FAR).spawn() for _ in range(count)]
        near, far = hub.amounts(), [spoke.amounts() for spoke in spokes]
        first = hub.call_all(spokes)
        again = hub.call_all(spokes)
        near_after, far_after = hub.amounts(), [spoke.amounts() for spoke in spokes]
        fds, memory = zip(near, near_after, strict=True)
        self._found = {
            "next": again,
            "fds": (fds[1] - fds[0]) / count,
            "memory": (memory[1] - memory[0]) / count,
        }
        for index, name in enumerate(("fds_far", "memory_far")):
            pairs = zip(far, far_after, strict=True)
            grown = [after[index] - before[index] for before, after in pairs]
            self._found[name] = statistics.median(grown)
        return first

    def told(self, name: str, count: int) -> float:
        return self._found[name]


def serve_pairs(address: str) -> None:
    """Be the driver, until killed."""
    with moo.init(address):
        pairs = Pairs()
        works: dict[str, Callable[[int], float]] = {"first": pairs.measure}
        for name in ("next", "fds", "fds_far", "memory", "memory_far"):
            works[name] = partial(pairs.told, name)
        answer(works)


def serve_connections(curved: str, plain: str) -> None:
    """Be the caller of raw pyzmq, until killed."""
    answer(
        {
            "curve": lambda repeats: _connecting(curved, True, repeats),
            "plain": lambda repeats: _connecting(plain, False, repeats),
        }
    )


def _connecting(address: str, is_curved: bool, repeats: int) -> float:
    def once() -> None:
        with pyzmq.connected(address, is_curved) as peer:
            peer.ping()

    return statistics.median(_timed(once) for _ in range(repeats))


def _timed(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


if __name__ == "__main__":
    role, *words = sys.argv[1:]
    if role == "pairs":
        serve_pairs(*words)
    else:
        serve_connections(*words)
