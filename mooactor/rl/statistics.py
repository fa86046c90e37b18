# SPDX-License-Identifier: MIT
"""Small statistics for reports, of few games and of a learner's batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mooactor.rl.vtrace import VTrace


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
    """The mean of ``samples`` and its 95 % percentile-bootstrap interval (Efron, 1979).

    Raises:
      ValueError: ``samples`` is empty.
    """
    if not samples:
        raise ValueError("an interval needs at least one sample")
    values = np.asarray(samples, np.float64)
    drawn = np.random.default_rng(seed).choice(values, (resamples, len(values)))
    low, high = np.percentile(drawn.mean(axis=1), [2.5, 97.5])
    return Interval(float(values.mean()), float(low), float(high))


@torch.no_grad()
def explained_variance(values: Tensor, targets: Tensor, valid: Tensor) -> Tensor:
    """The share of the targets' variance that the values explain.

    1 - Var[targets - values] / Var[targets], both over the entries where ``valid``:
    1 is perfect, 0 is no better than a constant, and below 0 is worse than that. All
    three are ``[T, B]``, or any one shape; ``valid`` is bool, and entries elsewhere may
    hold anything. Returns a 0-d tensor on the same device, without waiting for it; it
    is NaN where the targets do not vary, or nothing is valid.
    """
    variance = _variance(targets, valid)
    unexplained = _variance(targets - values, valid) / variance
    return torch.where(variance > 0, 1 - unexplained, torch.nan)


@torch.no_grad()
def approximate_kl(log_ratio: Tensor, valid: Tensor) -> Tensor:
    """An estimate of KL(mu || pi) from actions that mu chose: mean of (r - 1) - log r.

    ``log_ratio`` ``[T, B]``, or any shape, is log r = log pi(a|x) - log mu(a|x), mu the
    policy that acted and pi the one that learns. ``valid`` is bool and of the same
    shape; entries elsewhere may hold anything. Returns a 0-d tensor on the same device,
    without waiting for it; it is NaN where nothing is valid.

    No term is negative, and the estimate is unbiased. It is k3 of "Approximating KL
    Divergence" (Schulman, 2020), http://joschu.net/blog/kl-approx.html.
    """
    return _mean(torch.expm1(log_ratio) - log_ratio, valid)


@torch.no_grad()
def off_policy_facts(
    log_ratio: Tensor, valid: Tensor, values: Tensor, traced: VTrace
) -> dict[str, Tensor]:
    """Measures of the distance between the policy that learns and the one that acted.

    ``rho`` is the mean clipped importance weight, ``clipped_rho`` the share that was
    clipped; the others are `approximate_kl` and `explained_variance`. All arguments are
    ``[T, B]``, ``log_ratio`` as in `approximate_kl`; ``traced`` is what `vtrace`
    returned. 0-d tensors on the same device: nothing here waits for it.
    """
    count = valid.sum()
    return {
        "rho": (traced.rhos * valid).sum() / count,
        "clipped_rho": ((log_ratio > 0) * valid).sum() / count,
        "approx_kl": approximate_kl(log_ratio, valid),
        "explained_variance": explained_variance(values, traced.targets, valid),
    }


def _mean(values: Tensor, valid: Tensor) -> Tensor:
    return torch.where(valid, values, 0.0).sum() / valid.sum()


def _variance(values: Tensor, valid: Tensor) -> Tensor:
    # From one of the values, so that equal ones have exactly no variance.
    origin = torch.where(valid, values, -torch.inf).amax()
    shifted = values - origin
    return _mean((shifted - _mean(shifted, valid)).square(), valid)
