# SPDX-License-Identifier: MIT
"""Small statistics for reports: how sure a mean of few games is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Interval(NamedTuple):
    """A mean with the ends of its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} (95% {self.low:.2f} to {self.high:.2f})"


def bootstrap_interval(
    samples: Sequence[float], *, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """The mean of ``samples`` and its 95 % percentile-bootstrap interval.

    Raises:
      ValueError: ``samples`` is empty.
    """
    if not samples:
        raise ValueError("an interval needs at least one sample")
    values = np.asarray(samples, np.float64)
    drawn = np.random.default_rng(seed).choice(values, (resamples, len(values)))
    low, high = np.percentile(drawn.mean(axis=1), [2.5, 97.5])
    return Interval(float(values.mean()), float(low), float(high))
