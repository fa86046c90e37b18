# SPDX-License-Identifier: MIT
"""How soon a caller knows of a death: of a killed actor here and on another host, and
of a host whose cable is cut, or whose packets vanish in one direction.

Each time begins just before the fault, and ends when a call that waits has its error.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

import mooactor as moo
from mooactor.cli.bench.measure import Effort
from mooactor.cli.bench.report import Goal, Row, Skipped
from tests.bench.between import FAR, NEAR, Pair, answer, cluster, why_not

_CUTS = 3
_FLOOD_BYTES = 1 << 27


class _Silence(NamedTuple):
    """A way in which nothing is heard of a host any more."""

    what: str
    fault: Callable[[Pair], None]
    under_way: str = "begin"
    most_s: int = 3


_SILENCES = {
    "hosts.cut": _Silence(
        "its host's cable was cut", lambda made: made.network.cut(FAR)
    ),
    "hosts.swallowed.calls": _Silence(
        "all that is sent to its host vanishes",
        lambda made: made.network.swallow(NEAR, FAR),
    ),
    "hosts.swallowed.answers": _Silence(
        "all that its host sends vanishes",
        lambda made: made.network.swallow(FAR, NEAR),
    ),
    "hosts.cut.full": _Silence(
        "its host's cable was cut while large arrays went there",
        lambda made: made.network.cut(FAR),
        under_way="flood",
        most_s=5,
    ),
}
NAMES = ("hosts.killed.here", "hosts.killed.far", *_SILENCES)


def rows(effort: Effort) -> Iterator[Row | Skipped]:
    """Killed actors, then cut cables."""
    if why := why_not():
        yield Skipped("hosts.killed.here", why)
        return
    with cluster() as made, made.driver(__name__, made.address) as side:
        kills = effort.repeats(20)
        work = "a waiting call's error after kill -9 of its actor, on this host"
        here = float(side.ask(f"here {kills}")) * 1e3
        yield Row("hosts.killed.here", work, "ms", here, {}, Goal("at most", 50))
        work = "a waiting call's error after kill -9 of its actor, on another host"
        far = float(side.ask(f"far {kills}")) * 1e3
        yield Row("hosts.killed.far", work, "ms", far, {}, Goal("at most", 100))
    for name, silence in _SILENCES.items():
        tries = range(min(_CUTS, effort.rounds))
        took = statistics.median(_noticed(silence) for _ in tries)
        work = f"a waiting call's error after {silence.what}"
        yield Row(name, work, "s", took, {}, Goal("at most", silence.most_s))


def _noticed(silence: _Silence) -> float:
    """Seconds, in a cluster of its own: the host counts as dead for good."""
    with cluster() as made, made.driver(__name__, made.address) as side:
        side.ask(f"{silence.under_way} 0")
        began = time.perf_counter()  # one clock for all processes of a machine
        silence.fault(made)
        return float(side.ask("ended 0")) - began


# -- the driver -------------------------------------------------------------------


@moo.actor
class Waits:
    """Has a call under way for as long as it lives."""

    def __init__(self) -> None:
        self._never = threading.Event()

    @moo.method(read_only=True)
    async def pid(self) -> int:
        return os.getpid()

    @moo.method
    def wait(self) -> None:
        self._never.wait()

    @moo.method(read_only=True)
    def take(self, array: np.ndarray[Any, Any]) -> int:
        return array.nbytes


def serve(address: str) -> None:
    """Be the driver, and do what each line says, until killed."""
    with moo.init(address, preload=[Waits.__module__]):
        waiting: list[Callable[[], BaseException | None]] = []

        def begin(_: int) -> float:
            made = moo.on(Waits, host=FAR).spawn()
            waiting.append(made.wait.remote().exception)
            made.pid.remote().get()
            return 0.0

        def flood(_: int) -> float:
            waiting.append(_flood(moo.on(Waits, host=FAR).spawn()))
            return 0.0

        def ended(_: int) -> float:
            _died(waiting.pop(), "host")
            return time.perf_counter()

        answer(
            {
                "here": lambda count: _median_of_kills(NEAR, count),
                "far": lambda count: _median_of_kills(FAR, count),
                "begin": begin,
                "flood": flood,
                "ended": ended,
            }
        )


def _flood(made: Waits) -> Callable[[], BaseException | None]:
    """Send large arrays there from now on; how to wait for the error of that."""
    array = np.ones(_FLOOD_BYTES, np.uint8)

    def send() -> None:
        while True:
            made.take(array)

    made.take(array)
    return ThreadPoolExecutor(1).submit(send).exception


def _median_of_kills(host: str, count: int) -> float:
    return statistics.median(_killed(host) for _ in range(count))


def _killed(host: str) -> float:
    made = moo.on(Waits, host=host).spawn()
    ref = made.wait.remote()
    pid = made.pid.remote().get()
    began = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    _died(ref.exception, "signal")
    return time.perf_counter() - began


def _died(wait: Callable[[], BaseException | None], kind: str) -> None:
    """Wait for the error of a call, which says what killed its actor."""
    error = wait()
    cause = error.cause if isinstance(error, moo.ActorDied) else None
    if cause is None or cause.kind != kind:
        raise RuntimeError(f"a death by {kind} was told as {error!r}")


if __name__ == "__main__":
    serve(*sys.argv[1:])
