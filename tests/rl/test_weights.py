# SPDX-License-Identifier: MIT
"""All weights as one fingerprint."""

from __future__ import annotations

import torch

from mooactor.rl import fingerprint


def test_a_fingerprint_sees_a_single_bit_and_ignores_the_layout() -> None:
    weights = {"a": torch.randn(4, 6), "b": torch.zeros(3)}
    same = {"a": weights["a"].t().contiguous().t(), "b": torch.zeros(3)}
    assert fingerprint(weights) == fingerprint(same)
    same["a"] = weights["a"].clone()
    same["a"].view(torch.int32)[2, 3] ^= 1
    assert fingerprint(weights) != fingerprint(same)
    assert fingerprint({"a": weights["a"]}) != fingerprint({"c": weights["a"]})
