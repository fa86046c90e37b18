# SPDX-License-Identifier: MIT
"""V-trace: targets for a policy that learns from an older policy's actions.

From "IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner
Architectures" (Espeholt et al., 2018), section 4.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class VTrace(NamedTuple):
    """The result of `vtrace`; no gradient flows through any of it.

    ``targets`` ``[T, B]`` are the value targets v_s of equation 1. ``advantages``
    ``[T, B]`` are rho_s (r_s + gamma_s v_{s+1} - V(x_s)), the factor of the policy
    gradient. ``rhos`` ``[T, B]`` are the clipped importance weights.
    """

    targets: Tensor
    advantages: Tensor
    rhos: Tensor


@torch.no_grad()
def vtrace(
    log_ratios: Tensor,
    discounts: Tensor,
    rewards: Tensor,
    values: Tensor,
    bootstrap: Tensor,
    *,
    valid: Tensor | None = None,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    lam: float = 1.0,
) -> VTrace:
    """Compute V-trace targets and advantages, time first.

    All inputs are ``[T, B]`` but ``bootstrap`` ``[B]``, the value of the state after
    the last step. ``log_ratios`` is log pi(a|x) - log mu(a|x), pi the policy that
    learns and mu the one that acted. ``discounts`` is gamma, and 0 where the step ended
    the episode.

    ``valid`` is False where no action was taken: under next-step autoreset that is the
    step after an end, which only fetches the first observation of the next episode.
    There the trace is cut and the target is the plain value, so a truncated episode
    (discount gamma, followed by an invalid step) bootstraps from its last observation.

    Raises:
      ValueError: ``rho_bar < c_bar``, for which the paper proves no fixed point.
    """
    if rho_bar < c_bar:
        raise ValueError(f"rho_bar ({rho_bar}) must be at least c_bar ({c_bar})")
    ratios = log_ratios.exp()
    if valid is not None:
        ratios = ratios * valid
    rhos = ratios.clamp(max=rho_bar)
    traces = discounts * lam * ratios.clamp(max=c_bar)
    next_values = torch.cat([values[1:], bootstrap[None]])
    deltas = rhos * (rewards + discounts * next_values - values)
    targets = values + _accumulate(deltas, traces)
    next_targets = torch.cat([targets[1:], bootstrap[None]])
    advantages = rhos * (rewards + discounts * next_targets - values)
    return VTrace(targets, advantages, rhos)


def _accumulate(deltas: Tensor, traces: Tensor) -> Tensor:
    """The recursion of remark 1: a_s = delta_s + gamma_s c_s a_{s+1}."""
    sums = torch.empty_like(deltas)
    total = torch.zeros_like(deltas[0])
    for step in range(len(deltas) - 1, -1, -1):
        total = torch.addcmul(deltas[step], traces[step], total)
        sums[step] = total
    return sums
