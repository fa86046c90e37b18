# SPDX-License-Identifier: MIT
"""All gradients as one tensor, all weights as one fingerprint."""

from __future__ import annotations

import torch
from torch import nn

from mooactor.rl import fingerprint, flatten_gradients


def test_the_flat_gradient_is_what_backward_fills_and_the_optimizer_sees() -> None:
    network = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
    inputs = torch.randn(7, 3)
    expected = torch.autograd.grad(network(inputs).sum(), list(network.parameters()))
    flat = flatten_gradients(network, lambda s, t: torch.zeros(s, dtype=t))
    network(inputs).sum().backward()
    torch.testing.assert_close(flat, torch.cat([grad.flatten() for grad in expected]))
    before = network[0].weight.detach().clone()
    flat.fill_(1.0)
    torch.optim.SGD(network.parameters(), 0.5).step()
    torch.testing.assert_close(network[0].weight.detach(), before - 0.5)


def test_a_fingerprint_sees_a_single_bit_and_ignores_the_layout() -> None:
    weights = {"a": torch.randn(4, 6), "b": torch.zeros(3)}
    same = {"a": weights["a"].t().contiguous().t(), "b": torch.zeros(3)}
    assert fingerprint(weights) == fingerprint(same)
    same["a"] = weights["a"].clone()
    same["a"].view(torch.int32)[2, 3] ^= 1
    assert fingerprint(weights) != fingerprint(same)
    assert fingerprint({"a": weights["a"]}) != fingerprint({"c": weights["a"]})
