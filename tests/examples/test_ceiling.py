# SPDX-License-Identifier: MIT
"""The speed of a machine that did nothing else; a run of the example measures it,
see tests/examples/test_impala_runs.py."""

from __future__ import annotations

import pytest

from impala import Ceiling, StepCost


def test_a_ceiling_is_what_all_cores_could_do_at_the_cost_of_a_step() -> None:
    alone, together = StepCost(1e-3, 2e-3, 1e-3), StepCost(2e-3, 2e-3, 1e-3)
    ceiling = Ceiling(alone, together, 2, loop_steps_per_s=77.0)
    assert ceiling.steps_per_s == pytest.approx(500)
    assert ceiling.together_steps_per_s == pytest.approx(400)
    assert str(ceiling).startswith("ideal 500 steps/s = 2 cores / (1000 us environment")
    assert str(ceiling).endswith("a loop in one process reaches 77")
