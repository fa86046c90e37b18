# SPDX-License-Identifier: MIT
"""Bootstrap intervals, explained variance and an estimate of the KL divergence."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from mooactor.rl import (
    Episode,
    EpisodeCounter,
    Meter,
    VTrace,
    approximate_kl,
    bootstrap_interval,
    explained_variance,
    off_policy_facts,
)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    covered = 0
    for trial in range(300):
        samples = rng.exponential(1.0, 30).tolist()
        interval = bootstrap_interval(samples, resamples=500, seed=trial)
        covered += interval.low <= 1.0 <= interval.high
        assert interval.mean == pytest.approx(np.mean(samples))
    assert 0.86 < covered / 300 < 0.99  # skewed samples of 30 cover a little less


def test_equal_samples_leave_no_doubt_and_none_have_no_interval() -> None:
    assert str(bootstrap_interval([1.0, 1.0])) == "1.00 (95% 1.00 to 1.00)"
    with pytest.raises(ValueError, match="at least one sample"):
        bootstrap_interval([])


def some(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Values, targets, and which are valid; the others hold what must not count."""
    generator = torch.Generator().manual_seed(seed)
    targets = 5 + 2 * torch.randn(20, 8, generator=generator)
    values = targets + torch.randn(20, 8, generator=generator)
    valid = torch.rand(20, 8, generator=generator) < 0.7
    targets[~valid], values[~valid] = torch.nan, torch.inf
    return values, targets, valid


def test_explained_variance_is_what_numpy_says() -> None:
    values, targets, valid = some(0)
    values.requires_grad_()
    kept = targets[valid].numpy(), values[valid].detach().numpy()
    explained = explained_variance(values, targets, valid)
    assert explained.shape == () and not explained.requires_grad
    expected = 1 - np.var(kept[0] - kept[1]) / np.var(kept[0])
    assert explained.item() == pytest.approx(expected, rel=1e-4)
    assert explained_variance(targets, targets, valid) == 1
    constant = torch.full_like(targets, 2.0)
    assert explained_variance(constant, targets, valid).item() == pytest.approx(0)


def test_the_kl_estimate_is_the_mean_that_schulman_writes() -> None:
    log_ratio, _, valid = some(1)
    log_ratio = ((log_ratio - 5) / 4).requires_grad_()
    ratios = log_ratio[valid].detach().double().exp().numpy()
    expected = np.mean((ratios - 1) - np.log(ratios))
    estimate = approximate_kl(log_ratio, valid)
    assert estimate.shape == () and not estimate.requires_grad
    assert estimate.item() == pytest.approx(expected, rel=1e-4)
    tiny = approximate_kl(torch.full((20, 8), -3e-4), valid)  # not a negative one
    assert tiny.item() == pytest.approx(4.5e-8, rel=1e-2)
    assert approximate_kl(log_ratio, torch.zeros_like(valid)).isnan()


def test_off_policy_facts_are_those_of_the_valid_steps() -> None:
    generator = torch.Generator().manual_seed(4)
    log_ratio = 0.3 * torch.randn(20, 8, generator=generator)
    values, targets, valid = some(5)
    rhos = log_ratio.exp().clamp(max=1.0) * valid
    traced = VTrace(targets, torch.zeros(20, 8), rhos)
    facts = off_policy_facts(log_ratio, valid, values, traced)
    chosen = log_ratio[valid].double()
    assert facts["rho"].item() == pytest.approx(chosen.exp().clamp(max=1).mean().item())
    assert facts["clipped_rho"].item() == pytest.approx((chosen > 0).double().mean())
    assert facts["approx_kl"] == approximate_kl(log_ratio, valid)
    expected = explained_variance(values, targets, valid)
    assert facts["explained_variance"] == expected


def test_scores_are_sums_from_one_end_to_the_next() -> None:
    """The step after an end, which brings the next game, is of none of them."""
    rewards = np.array([[1, 5], [2, 5], [99, 5], [4, 5], [8, 5]], np.float32)
    ended = np.array([[0, 0], [1, 0], [0, 0], [0, 1], [1, 0]], np.bool_)
    counter, finished = EpisodeCounter(2), []
    for step_rewards, step_ended in zip(rewards, ended, strict=True):
        counter.add(step_rewards, step_ended)
        finished.append(counter.finished())
    assert finished == [
        [],
        [(0, Episode(3.0, 2))],
        [],
        [(1, Episode(20.0, 4))],
        [(0, Episode(12.0, 2))],
    ]


def test_means_are_those_of_all_that_was_added_and_is_known() -> None:
    meter = Meter()
    for value in (1.0, 2.0, 6.0):
        meter.add({"number": value, "tensor": torch.tensor(value)})
    meter.add({"mixed": 1.0, "some": math.nan, "none": math.nan})
    meter.add({"mixed": torch.tensor(2.0), "some": 4.0})
    means = meter.means()
    assert math.isnan(means.pop("none"))
    assert means == {"number": 3.0, "tensor": 3.0, "mixed": 1.5, "some": 4.0}
    assert meter.values("tensor").tolist() == [1.0, 2.0, 6.0]
    assert meter.values("never").shape == (0,)
