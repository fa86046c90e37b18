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
from concurrent.futures import Future
from typing import Any

import numpy as np

import mooactor as moo
from mooactor.cli.bench.clusters import FAR, NEAR, Cluster, cluster
from mooactor.cli.bench.hosts import answer
from mooactor.cli.bench.measure import Effort
from mooactor.cli.bench.namespaces import cut, obstacle, swallow
from mooactor.cli.bench.row import Goal, Row, Skipped

_CUTS = 3
_FLOOD_BYTES = 1 << 27


def _cut(made: Cluster) -> None:
    cut(made.far)


def _swallow_calls(made: Cluster) -> None:
    swallow(made.near, made.far)


def _swallow_answers(made: Cluster) -> None:
    swallow(made.far, made.near)


# By row: what happens to the host, what is under way, the work, most seconds.
_SILENCES = {
    "hosts.cut": (_cut, "begin", "its host's cable was cut", 3),
    "hosts.swallowed.calls": (
        _swallow_calls,
        "begin",
        "all that is sent to its host vanishes",
        3,
    ),
    "hosts.swallowed.answers": (
        _swallow_answers,
        "begin",
        "all that its host sends vanishes",
        3,
    ),
    "hosts.cut.full": (
        _cut,
        "flood",
        "its host's cable was cut while large arrays went there",
        5,
    ),
}
NAMES = ("hosts.killed.here", "hosts.killed.far", *_SILENCES)


def rows(effort: Effort) -> Iterator[Row | Skipped]:
    """Killed actors, then cut cables."""
    if why := obstacle():
        yield Skipped("hosts.killed.here", why)
        return
    try:
        with cluster() as made, made.driver(__name__, made.address) as side:
            kills = effort.repeats(20)
            work = "a waiting call's error after kill -9 of its actor, on this host"
            here = float(side.ask(f"here {kills}")) * 1e3
            yield Row("hosts.killed.here", work, "ms", here, {}, Goal("at most", 50))
            work = "a waiting call's error after kill -9 of its actor, on another host"
            far = float(side.ask(f"far {kills}")) * 1e3
            yield Row("hosts.killed.far", work, "ms", far, {}, Goal("at most", 100))
        for name, (fault, under_way, what, most) in _SILENCES.items():
            tries = range(min(_CUTS, effort.rounds))
            took = statistics.median(_silence(fault, under_way) for _ in tries)
            work = f"a waiting call's error after {what}"
            yield Row(name, work, "s", took, {}, Goal("at most", most))
    except OSError as error:
        yield Skipped("hosts.killed.here", f"no network namespaces here: {error}")


def _silence(fault: Callable[[Cluster], None], under_way: str) -> float:
    """Seconds, in a cluster of its own: the host counts as dead for good."""
    with cluster() as made, made.driver(__name__, made.address) as side:
        side.ask(f"{under_way} 0")
        began = time.perf_counter()  # one clock for all processes of a machine
        fault(made)
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
    ended: Future[BaseException] = Future()

    def send() -> None:
        try:
            while True:
                made.take(array)
        except moo.MooError as error:
            ended.set_result(error)

    made.take(array)
    threading.Thread(target=send, daemon=True).start()
    return ended.result


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
