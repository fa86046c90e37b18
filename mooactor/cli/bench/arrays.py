# SPDX-License-Identifier: MIT
"""Arrays and tensors as arguments, beside one memcpy of the same size."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import mooactor as moo
from mooactor.cli.bench import pyzmq
from mooactor.cli.bench.measure import Effort, median_seconds, turn_about
from mooactor.cli.bench.row import Goal, Row

NAMES = ("array.1MB", "array.64MB", "array.shared")
MB = 1 << 20
ZMQ, MEMCPY = "raw pyzmq", "memcpy"
Timed = Callable[[], float]


@moo.actor
class Sink:
    """Reads one element, so that the data must have arrived."""

    def size_of(self, values: Any) -> tuple[float, int]:
        return float(values[0]), int(values.nbytes)


def rows(effort: Effort) -> Iterator[Row]:
    """Private memory of two sizes, numpy and torch; then memory already shared."""
    with moo.init(), pyzmq.echo() as peer:
        sink = moo.spawn(Sink)
        for megabytes in (1, 64):
            yield from _private(effort, sink, peer, megabytes)
        yield _shared(effort, sink, peer)


def _private(
    effort: Effort, sink: Sink, peer: pyzmq.Echo, megabytes: int
) -> Iterator[Row]:
    values = np.random.default_rng(0).random(megabytes * MB // 8)
    kinds: dict[str, Any] = {"numpy": values}
    if importlib.util.find_spec("torch"):
        import torch

        kinds["torch"] = torch.from_numpy(values)
    repeats = effort.repeats(60 if megabytes == 1 else 8)

    def speed(function: Callable[[], object]) -> Timed:
        gigabytes = values.nbytes / 1e9
        return lambda: gigabytes / median_seconds(function, repeats)

    for kind, argument in kinds.items():
        # the peer has no notion of tensors: it gets the same memory as an array
        ours, zmq, memcpy = turn_about(
            effort.rounds,
            speed(lambda argument=argument: sink.size_of(argument)),  # type: ignore[misc]
            speed(lambda: peer.size_of(values)),
            speed(_copy_of(values)),
        )
        yield Row(
            f"array.{megabytes}MB",
            f"{megabytes} MB {kind} argument",
            "GB/s",
            ours,
            {ZMQ: zmq, MEMCPY: memcpy},
            Goal("at least", 5) if megabytes == 1 else Goal("at least", 0.8, MEMCPY),
        )


def _copy_of(values: np.ndarray[Any, Any]) -> Callable[[], object]:
    target = np.zeros_like(values)  # touched: a fresh page costs ten copies
    return lambda: np.copyto(target, values)


def _shared(effort: Effort, sink: Sink, peer: pyzmq.Echo) -> Row:
    """64 MB in shared memory against 1 MB there: the size must not matter."""
    large, small = (moo.empty((n * MB // 4,), dtype="float32") for n in (64, 1))
    for values in (large, small):
        values[:] = 1.0
    private = np.array(large)
    repeats = effort.repeats(40)

    def time(function: Callable[[Any], Any], argument: Any, times: int) -> Timed:
        return lambda: median_seconds(lambda: function(argument), times) * 1e6

    ours, one, zmq = turn_about(
        effort.rounds,
        time(sink.size_of, large, repeats),
        time(sink.size_of, small, repeats),
        time(peer.size_of, private, 3),
    )
    work = "64 MB argument already in shared memory (moo.empty)"
    peers = {"1 MB so": one, ZMQ: zmq}
    return Row("array.shared", work, "µs", ours, peers, Goal("at most", 1.5, "1 MB so"))
