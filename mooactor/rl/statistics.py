# SPDX-License-Identifier: MIT
"""Statistics: whole games, means by name, intervals, and measures of a batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mooactor.rl.vtrace import VTrace


class Episode(NamedTuple):
    """One finished game: the sum of its unclipped rewards, and its agent steps."""

    score: float
    steps: int


class EpisodeCounter:
    """Sums rewards for each environment and returns the games that end.

    Feed it unclipped rewards: clipped ones do not add up to the score. Under next-step
    autoreset the step after an end belongs to no game, and the counter leaves it out.
    """

    def __init__(self, num_envs: int) -> None:
        self._scores = np.zeros(num_envs, np.float64)
        self._steps = np.zeros(num_envs, np.int64)
        self._ended = np.zeros(num_envs, np.bool_)

    def add(self, rewards: NDArray[np.float32], ended: NDArray[np.bool_]) -> None:
        """Count one step of all environments, in order of time.

        ``rewards`` and ``ended`` are ``[num_envs]``.
        """
        playing = ~self._ended
        self._scores[self._ended] = 0.0
        self._steps[self._ended] = 0
        self._scores += np.where(playing, rewards, 0.0)
        self._steps += playing
        self._ended = ended.copy()

    def finished(self) -> list[tuple[int, Episode]]:
        """The games that the last `add` ended, as (environment, episode)."""
        return [
            (int(index), Episode(float(self._scores[index]), int(self._steps[index])))
            for index in np.flatnonzero(self._ended)
        ]


class Meter:
    """Collects numbers and 0-d tensors by name until they are read.

    Tensors are not looked at before that, so adding one does not wait for a GPU.
    """

    def __init__(self) -> None:
        self._samples: dict[str, list[float | Tensor]] = defaultdict(list)

    def add(self, facts: Mapping[str, float | Tensor]) -> None:
        """Add one number or 0-d tensor under each name."""
        for name, value in facts.items():
            self._samples[name].append(value)

    def values(self, name: str) -> Tensor:
        """The values added under ``name``, ``[n]`` float64 on the CPU."""
        samples = self._samples.get(name, [])
        tensors = [sample for sample in samples if isinstance(sample, Tensor)]
        if len(tensors) == len(samples) > 0:
            return torch.stack(tensors).double().cpu()  # one wait for all
        return torch.tensor([float(sample) for sample in samples], dtype=torch.float64)

    def means(self) -> dict[str, float]:
        """The mean under each name, without NaN unless all values are NaN."""
        return {name: float(self.values(name).nanmean()) for name in self._samples}


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
