# SPDX-License-Identifier: MIT
"""Means by name, of numbers and of tensors."""

from __future__ import annotations

import math

import torch

from mooactor.rl import Meter


def test_means_are_those_of_all_that_was_added() -> None:
    meter = Meter()
    for value in (1.0, 2.0, 6.0):
        meter.add({"number": value, "tensor": torch.tensor(value)})
    meter.add({"mixed": 1.0})
    meter.add({"mixed": torch.tensor(2.0)})
    assert meter.means() == {"number": 3.0, "tensor": 3.0, "mixed": 1.5}
    assert meter.values("tensor").tolist() == [1.0, 2.0, 6.0]


def test_what_is_not_known_is_left_out() -> None:
    meter = Meter()
    meter.add({"some": math.nan, "none": math.nan})
    meter.add({"some": 4.0})
    means = meter.means()
    assert means["some"] == 4.0
    assert math.isnan(means["none"])
    assert meter.values("never").shape == (0,)
