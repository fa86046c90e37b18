# SPDX-License-Identifier: MIT
"""V-trace against the paper's formulas, written out the slow way."""

from __future__ import annotations

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
@pytest.mark.parametrize(("rho_bar", "c_bar"), [(1.0, 1.0), (3.0, 0.5), (1e9, 1.0)])
@pytest.mark.parametrize("lam", [1.0, 0.9])
def test_targets_are_those_of_equation_1(
    steps: int, batch: int, rho_bar: float, c_bar: float, lam: float
) -> None:
    inputs = trajectories(steps, batch)
    traced = vtrace(**inputs, rho_bar=rho_bar, c_bar=c_bar, lam=lam)
    expected = equation_1(inputs, rho_bar, c_bar, lam)
    torch.testing.assert_close(traced.targets, expected, rtol=1e-12, atol=1e-12)


def test_on_policy_targets_are_n_step_bellman_targets() -> None:
    inputs = trajectories(12, 3)
    inputs["log_ratios"].zero_()
    expected, following = torch.empty_like(inputs["values"]), inputs["bootstrap"]
    for step in range(11, -1, -1):
        following = inputs["rewards"][step] + inputs["discounts"][step] * following
        expected[step] = following
    torch.testing.assert_close(vtrace(**inputs).targets, expected)


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


def test_an_independent_implementation_gives_the_same() -> None:
    """The expected numbers are what torchrl 0.14.1 gave for these inputs."""

    def table(rows: list[list[float]]) -> Tensor:
        return torch.tensor(rows, dtype=torch.float64)

    discounts = torch.full((6, 2), GAMMA, dtype=torch.float64)
    discounts[2, 0] = discounts[4, 1] = 0.0
    traced = vtrace(
        log_ratios=table(
            [
                [0.77, -0.145],
                [-1.09, 0.285],
                [-0.54, -0.7],
                [0.2, 0.42],
                [-0.36, -0.2],
                [-0.3, 0.09],
            ]
        ),
        discounts=discounts,
        rewards=table(
            [
                [-0.86, 1.1],
                [-1.07, 0.12],
                [-0.57, 0.37],
                [-0.89, -1.51],
                [0.37, 1.46],
                [0.94, 0.77],
            ]
        ),
        values=table(
            [
                [0.19, 1.26],
                [-1.29, -0.79],
                [-0.02, -0.72],
                [0.52, -1.31],
                [0.19, 0.54],
                [-2.22, 0.26],
            ]
        ),
        bootstrap=table([[-1.03, -0.5]])[0],
    )
    targets = table(
        [
            [-2.17607939, 0.9771003],
            [-1.32937311, -0.16873055],
            [-0.34051154, -0.29164702],
            [-1.01139039, -0.22970002],
            [-0.12261656, 1.29323229],
            [-0.63442677, 0.275],
        ]
    )
    advantages = table(
        [
            [-2.36607939, -0.2828997],
            [-0.03937311, 0.62126945],
            [-0.32051154, 0.42835298],
            [-1.53139039, 1.08029998],
            [-0.31261656, 0.75323229],
            [1.58557323, 0.015],
        ]
    )
    torch.testing.assert_close(traced.targets, targets, atol=1e-7, rtol=0)
    torch.testing.assert_close(traced.advantages, advantages, atol=1e-7, rtol=0)


def test_an_end_in_mid_unroll_cuts_bootstrap_and_trace() -> None:
    inputs = trajectories(10, 2)
    inputs["discounts"][4] = 0.0
    before = vtrace(**inputs)
    for name in ("log_ratios", "rewards", "values"):
        inputs[name][5:] += 7.0
    inputs["bootstrap"] += 7.0
    after = vtrace(**inputs)
    assert torch.equal(before.targets[:5], after.targets[:5])
    assert torch.equal(before.advantages[:5], after.advantages[:5])
    assert not torch.equal(before.targets[5:], after.targets[5:])


def test_large_ratios_count_as_one() -> None:
    inputs = trajectories(10, 2)
    on_policy = vtrace(**(inputs | {"log_ratios": torch.zeros(10, 2).double()}))
    far_off = vtrace(**(inputs | {"log_ratios": torch.full((10, 2), 20.0).double()}))
    assert torch.equal(on_policy.targets, far_off.targets)
    assert torch.equal(on_policy.advantages, far_off.advantages)


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


def test_no_gradient_flows_through_the_targets() -> None:
    inputs = trajectories(4, 2)
    inputs["values"].requires_grad_()
    assert not vtrace(**inputs).targets.requires_grad


def test_a_rho_bar_below_c_bar_is_refused() -> None:
    with pytest.raises(ValueError, match="at least c_bar"):
        vtrace(**trajectories(2, 1), rho_bar=0.5, c_bar=1.0)
