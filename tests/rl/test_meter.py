# SPDX-License-Identifier: MIT
"""Means by name, of numbers and of tensors."""

from __future__ import annotations

import math

import torch

from mooactor.rl import Meter, Pace


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


def test_a_pace_comes_to_one_report_a_period() -> None:
    pace, update_s = Pace(1.0), 0.03
    asked = []
    for _ in range(8):
        asked.append(pace.updates)
        pace.adapt(pace.updates * update_s)
    assert asked == [1, 2, 4, 8, 16, 32, 33, 33]
    pace.adapt(100.0)
    assert pace.updates == 1  # never none
    fixed = Pace(1.0, always=10)
    fixed.adapt(1e-6)
    assert fixed.updates == 10
