# SPDX-License-Identifier: MIT
"""Bootstrap intervals."""

from __future__ import annotations

import numpy as np
import pytest

from mooactor.rl import bootstrap_interval


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
