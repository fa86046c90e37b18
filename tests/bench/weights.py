# SPDX-License-Identifier: MIT
"""A network's weights to many actors: `moo.put` once, then one shared copy for all."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np

import mooactor as moo
from mooactor.cli.bench.measure import Effort, median_seconds, turn_about
from mooactor.cli.bench.report import Goal, Row

NAMES = ("weights.8",)
ACTORS = 8
# a small convolutional actor-critic: 0.68 M parameters, 2.7 MB
SHAPES = ((16, 4, 8, 8), (16,), (32, 16, 4, 4), (32,), (256, 2592), (256,), (5, 256))


@moo.actor
class Player:
    """Takes new weights, and keeps them."""

    def load(self, weights: dict[str, Any]) -> float:
        self.weights = weights
        return float(weights["0"].ravel()[0])


def rows(effort: Effort) -> Iterator[Row]:
    """From `moo.put` until the last actor has them."""
    weights = _weights()
    megabytes = sum(value.nbytes for value in weights.values()) / 1e6
    with moo.init():
        players = moo.on(Player).group(ACTORS)

        def publish() -> None:
            players.load.call(moo.put(weights)).get()

        (ours,) = turn_about(
            effort.rounds,
            lambda: median_seconds(publish, effort.repeats(20)) * 1e3,
        )
    work = f"{megabytes:.1f} MB of weights to {ACTORS} actors"
    yield Row("weights.8", work, "ms", ours, {}, Goal("at most", 5))


def _weights() -> dict[str, Any]:
    generator = np.random.default_rng(0)
    arrays = [generator.random(shape, np.float32) for shape in SHAPES]
    if importlib.util.find_spec("torch"):
        import torch

        return {str(i): torch.from_numpy(a) for i, a in enumerate(arrays)}
    return {str(i): a for i, a in enumerate(arrays)}
