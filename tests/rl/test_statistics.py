# SPDX-License-Identifier: MIT
"""Bootstrap intervals, explained variance and an estimate of the KL divergence."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, kl_divergence

from mooactor.rl import (
    VTrace,
    approximate_kl,
    bootstrap_interval,
    explained_variance,
    off_policy_facts,
)


def test_equal_samples_leave_no_doubt() -> None:
    assert bootstrap_interval([4.0] * 30) == (4.0, 4.0, 4.0)


def test_the_interval_agrees_with_the_normal_one_for_many_samples() -> None:
    samples = np.random.default_rng(1).normal(10.0, 3.0, 400)
    interval = bootstrap_interval(samples.tolist())
    half_width = 1.96 * samples.std() / 400**0.5
    assert interval.mean == pytest.approx(samples.mean())
    assert interval.low == pytest.approx(samples.mean() - half_width, abs=0.03)
    assert interval.high == pytest.approx(samples.mean() + half_width, abs=0.03)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    covered = 0
    for trial in range(300):
        samples = rng.exponential(1.0, 30).tolist()
        interval = bootstrap_interval(samples, resamples=500, seed=trial)
        covered += interval.low <= 1.0 <= interval.high
    assert 0.86 < covered / 300 < 0.99  # skewed samples of 30 cover a little less


def test_the_text_names_the_mean_and_both_ends() -> None:
    assert str(bootstrap_interval([1.0, 1.0])) == "1.00 (95% 1.00 to 1.00)"


def test_no_samples_have_no_interval() -> None:
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


@pytest.mark.parametrize("seed", range(3))
def test_explained_variance_is_what_numpy_says(seed: int) -> None:
    values, targets, valid = some(seed)
    kept = targets[valid].double().numpy(), values[valid].double().numpy()
    expected = 1 - np.var(kept[0] - kept[1]) / np.var(kept[0])
    explained = explained_variance(values, targets, valid)
    assert explained.shape == ()
    assert 0.6 < expected < 0.9
    assert explained.item() == pytest.approx(expected, rel=1e-4)


def test_explained_variance_of_the_best_the_constant_and_the_worst() -> None:
    _, targets, valid = some(0)
    assert explained_variance(targets, targets, valid) == 1
    assert explained_variance(targets + 3, targets, valid).item() == pytest.approx(1)
    constant = torch.full_like(targets, 2.0)
    assert explained_variance(constant, targets, valid).item() == pytest.approx(0)
    assert explained_variance(-targets, targets, valid).item() == pytest.approx(-3)


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e6 / 3])
def test_targets_that_do_not_vary_leave_it_undefined(constant: float) -> None:
    targets = torch.full((7, 3), constant)
    valid = torch.ones(7, 3, dtype=torch.bool)
    assert explained_variance(torch.randn(7, 3), targets, valid).isnan()
    valid[1:] = False
    targets[1:] = 5.0
    assert explained_variance(torch.randn(7, 3), targets, valid).isnan()


def test_nothing_valid_leaves_both_undefined() -> None:
    values, targets, valid = some(0)
    none = torch.zeros_like(valid)
    assert explained_variance(values, targets, none).isnan()
    assert approximate_kl(values, none).isnan()


def test_the_kl_estimate_is_the_mean_that_schulman_writes() -> None:
    log_ratio, _, valid = some(1)
    log_ratio = (log_ratio - 5) / 4
    ratios = log_ratio[valid].double().exp().numpy()
    expected = np.mean((ratios - 1) - np.log(ratios))
    estimate = approximate_kl(log_ratio, valid)
    assert estimate.shape == ()
    assert estimate.item() == pytest.approx(expected, rel=1e-4)


def test_the_kl_estimate_comes_close_to_the_divergence() -> None:
    torch.manual_seed(0)
    acted = Categorical(logits=torch.tensor([0.5, 0.1, -0.4]))
    learns = Categorical(logits=torch.tensor([0.2, 0.3, -0.1]))
    actions = acted.sample((200, 200))
    log_ratio = learns.log_prob(actions) - acted.log_prob(actions)
    estimate = approximate_kl(log_ratio, torch.ones_like(actions, dtype=torch.bool))
    exact = kl_divergence(acted, learns)
    assert estimate.item() == pytest.approx(exact.item(), rel=0.03)


def test_equal_policies_have_no_divergence_and_tiny_ones_no_negative() -> None:
    valid = torch.ones(5, 4, dtype=torch.bool)
    assert approximate_kl(torch.zeros(5, 4), valid) == 0
    assert approximate_kl(torch.full((5, 4), -3e-4), valid).item() == pytest.approx(
        4.5e-8, rel=1e-2
    )


def test_neither_carries_a_gradient() -> None:
    values, targets, valid = some(2)
    values.requires_grad_()
    assert not explained_variance(values, targets, valid).requires_grad
    assert not approximate_kl(values, valid).requires_grad


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
