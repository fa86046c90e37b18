# SPDX-License-Identifier: MIT
"""Arrays and tensors as arguments, beside one memcpy of the same size."""

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import mooactor as moo
from mooactor.cli.bench import peers
from mooactor.cli.bench.measure import Effort, median_seconds, turn_about
from mooactor.cli.bench.report import Goal, Row

NAMES = ("array.1MB", "array.64MB", "array.shared")
MB = 1 << 20


@moo.actor
class Sink:
    """Reads one element, so that the data must have arrived."""

    def size_of(self, values: Any) -> tuple[float, int]:
        return float(values[0]), int(values.nbytes)


def rows(effort: Effort) -> Iterator[Row]:
    """Private memory of two sizes, numpy and torch; then memory already shared."""
    with moo.init(), peers.echo() as peer:
        sink = moo.spawn(Sink)
        for megabytes in (1, 64):
            yield from _private(effort, sink, peer, megabytes)
        yield _shared(effort, sink, peer)


def _timed(function: Callable[[Any], object], argument: Any, times: int) -> Any:
    return lambda: median_seconds(lambda: function(argument), times)


def _private(effort: Effort, sink: Sink, peer: peers.Echo, mb: int) -> Iterator[Row]:
    values = np.random.default_rng(0).random(mb * MB // 8)
    target = np.zeros_like(values)  # touched: a fresh page costs ten copies
    kinds: dict[str, Any] = {"numpy": values}
    if importlib.util.find_spec("torch"):
        import torch

        kinds["torch"] = torch.from_numpy(values)
    repeats = effort.repeats(60 if mb == 1 else 8)
    for kind, argument in kinds.items():
        # the peer has no notion of tensors: it gets the same memory as an array
        seconds = turn_about(
            effort.rounds,
            _timed(sink.size_of, argument, repeats),
            _timed(peer.size_of, values, repeats),
            _timed(lambda source: np.copyto(target, source), values, repeats),
        )
        ours, zmq, memcpy = (values.nbytes / 1e9 / each for each in seconds)
        name, work = f"array.{mb}MB", f"{mb} MB {kind} argument"
        goal = Goal("at least", 0.8, "memcpy") if mb > 1 else Goal("at least", 5)
        yield Row(name, work, "GB/s", ours, {peers.ZMQ: zmq, "memcpy": memcpy}, goal)


def _shared(effort: Effort, sink: Sink, peer: peers.Echo) -> Row:
    """64 MB in shared memory against 1 MB there: the size must not matter."""
    large, small = (moo.empty((n * MB // 4,), dtype="float32") for n in (64, 1))
    for values in (large, small):
        values[:] = 1.0
    seconds = turn_about(
        effort.rounds,
        _timed(sink.size_of, large, effort.repeats(40)),
        _timed(sink.size_of, small, effort.repeats(40)),
        _timed(peer.size_of, np.array(large), 3),
    )
    ours, one, zmq = (each * 1e6 for each in seconds)
    work = "64 MB argument already in shared memory (moo.empty)"
    beside, goal = {"1 MB so": one, peers.ZMQ: zmq}, Goal("at most", 1.5, "1 MB so")
    return Row("array.shared", work, "µs", ours, beside, goal)
