# SPDX-License-Identifier: MIT
"""V-trace against the paper's formulas, written out the slow way."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from mooactor.rl import vtrace

GAMMA = 0.99


def trajectories(steps: int, batch: int, seed: int = 0) -> dict[str, Tensor]:
    """Random float64 inputs in which a fifth of all steps end an episode."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    going_on = torch.rand(steps, batch, generator=generator) > 0.2
    return {
        "log_ratios": normal(steps, batch),
        "discounts": GAMMA * going_on.double(),
        "rewards": normal(steps, batch),
        "values": normal(steps, batch),
        "bootstrap": normal(batch),
    }


def equation_1(
    inputs: dict[str, Tensor], rho_bar: float, c_bar: float, lam: float
) -> Tensor:
    """v_s = V(x_s) + sum over t of gamma^(t-s) (product of c_i, s <= i < t) delta_t."""
    ratios = inputs["log_ratios"].exp()
    values, bootstrap = inputs["values"], inputs["bootstrap"]
    steps, batch = values.shape
    targets = torch.empty_like(values)
    for b in range(batch):
        for s in range(steps):
            target, weight = values[s, b].item(), 1.0
            for t in range(s, steps):
                after = values[t + 1, b] if t + 1 < steps else bootstrap[b]
                gamma, ratio = inputs["discounts"][t, b], ratios[t, b].item()
                delta = min(rho_bar, ratio) * (
                    inputs["rewards"][t, b] + gamma * after - values[t, b]
                )
                target += weight * delta.item()
                weight *= gamma.item() * lam * min(c_bar, ratio)
            targets[s, b] = target
    return targets


@pytest.mark.parametrize(("steps", "batch"), [(1, 1), (2, 3), (20, 4)])
def test_targets_are_those_of_equation_1(steps: int, batch: int) -> None:
    inputs = trajectories(steps, batch)
    inputs["values"].requires_grad_()
    bars = ((1.0, 1.0), (3.0, 0.5), (1e9, 1.0))
    for (rho_bar, c_bar), lam in itertools.product(bars, (1.0, 0.9)):
        traced = vtrace(**inputs, rho_bar=rho_bar, c_bar=c_bar, lam=lam)
        assert not traced.targets.requires_grad
        expected = equation_1(inputs, rho_bar, c_bar, lam).detach()
        torch.testing.assert_close(traced.targets, expected, rtol=1e-12, atol=1e-12)


def test_advantages_use_the_next_target_and_not_the_next_value() -> None:
    inputs = trajectories(9, 2)
    targets = equation_1(inputs, 1.0, 1.0, 1.0)
    after = torch.cat([targets[1:], inputs["bootstrap"][None]])
    rhos = inputs["log_ratios"].exp().clamp(max=1.0)
    expected = rhos * (
        inputs["rewards"] + inputs["discounts"] * after - inputs["values"]
    )
    traced = vtrace(**inputs)
    torch.testing.assert_close(traced.advantages, expected)
    torch.testing.assert_close(traced.rhos, rhos)


def test_a_truncated_episode_bootstraps_from_its_last_observation() -> None:
    inputs = trajectories(10, 2)
    inputs["discounts"][:] = GAMMA
    valid = torch.ones(10, 2, dtype=torch.bool)
    valid[5] = False  # step 4 was truncated; step 5 only fetched a new episode
    whole = vtrace(**inputs, valid=valid)
    first_part = {name: tensor[:5] for name, tensor in inputs.items()}
    first_part["bootstrap"] = inputs["values"][5]
    alone = vtrace(**first_part)
    torch.testing.assert_close(whole.targets[:5], alone.targets)
    torch.testing.assert_close(whole.advantages[:5], alone.advantages)
    assert torch.equal(whole.targets[5], inputs["values"][5])
    assert not whole.advantages[5].any()
