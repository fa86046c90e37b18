# SPDX-License-Identifier: MIT
"""How soon a caller knows of a death: of a killed actor here and on another host, and
of a host whose cable is cut.

Each time begins just before the fault, and ends when a call that waits has its error.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import mooactor as moo
from mooactor.cli.bench.clusters import FAR, NEAR, cluster
from mooactor.cli.bench.hosts import answer
from mooactor.cli.bench.measure import Effort
from mooactor.cli.bench.namespaces import cut, obstacle
from mooactor.cli.bench.row import Goal, Row, Skipped

NAMES = ("hosts.killed.here", "hosts.killed.far", "hosts.cut")
_CUTS = 3


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
        took = statistics.median(_cut() for _ in range(min(_CUTS, effort.rounds)))
        work = "a waiting call's error after its host's cable was cut"
        yield Row("hosts.cut", work, "s", took, {}, Goal("at most", 3))
    except OSError as error:
        yield Skipped("hosts.killed.here", f"no network namespaces here: {error}")


def _cut() -> float:
    """Seconds, in a cluster of its own: the host counts as dead for good."""
    with cluster() as made, made.driver(__name__, made.address) as side:
        side.ask("begin 0")
        began = time.perf_counter()  # one clock for all processes of a machine
        cut(made.far)
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


def serve(address: str) -> None:
    """Be the driver, and do what each line says, until killed."""
    with moo.init(address, preload=[Waits.__module__]):
        waiting: list[Any] = []

        def begin(_: int) -> float:
            made = moo.on(Waits, host=FAR).spawn()
            waiting.append(made.wait.remote())
            made.pid.remote().get()
            return 0.0

        def ended(_: int) -> float:
            _died(waiting.pop(), "host")
            return time.perf_counter()

        answer(
            {
                "here": lambda count: _median_of_kills(NEAR, count),
                "far": lambda count: _median_of_kills(FAR, count),
                "begin": begin,
                "ended": ended,
            }
        )


def _median_of_kills(host: str, count: int) -> float:
    return statistics.median(_killed(host) for _ in range(count))


def _killed(host: str) -> float:
    made = moo.on(Waits, host=host).spawn()
    ref = made.wait.remote()
    pid = made.pid.remote().get()
    began = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    _died(ref, "signal")
    return time.perf_counter() - began


def _died(ref: Any, kind: str) -> None:
    """Wait for the error of a call, which says what killed its actor."""
    error = ref.exception()
    cause = error.cause if isinstance(error, moo.ActorDied) else None
    if cause is None or cause.kind != kind:
        raise RuntimeError(f"a death by {kind} was told as {error!r}")


if __name__ == "__main__":
    serve(*sys.argv[1:])
