# SPDX-License-Identifier: MIT
"""Means by name, of numbers and of tensors."""

from __future__ import annotations

import math

import torch

from mooactor.rl import Meter, Pace


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


def test_a_pace_comes_to_one_report_a_period() -> None:
    pace, update_s = Pace(1.0), 0.03
    asked = []
    for _ in range(8):
        asked.append(pace.updates)
        pace.adapt(pace.updates * update_s)
    assert asked == [1, 2, 4, 8, 16, 32, 33, 33]
    pace.adapt(100.0)
    assert pace.updates == 1  # never none


def test_a_fixed_pace_does_not_depend_on_time() -> None:
    pace = Pace(1.0, always=10)
    pace.adapt(1e-6)
    assert pace.updates == 10
