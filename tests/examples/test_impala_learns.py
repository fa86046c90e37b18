# SPDX-License-Identifier: MIT
"""The IMPALA example learns, and the same with few processes and many."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.examples.conftest import metrics
from tests.marks import soak

LONGER = [(2, 2, 2), (16, 4, 1), (64, 4, 1)]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("actors", "learners", "seed"),
    [(2, 2, 1), *(soak(*plan) for plan in LONGER)],
)
def test_it_learns_cart_pole_the_same_with_few_processes_and_many(
    run: Callable[..., str],
    tmp_path: Path,
    actors: int,
    learners: int,
    seed: int,
) -> None:
    """The plans of machines with 2, 16 and 64 cores."""
    plan = ("--env", "CartPole-v1", "--actors", actors, "--learners", learners)
    # The others have more, because they are slower to learn.
    total = 400_000 if (actors, learners, seed) == (2, 2, 1) else 600_000
    settings = ("--total-steps", total, "--seed", seed, "--run-dir", tmp_path)
    # On a machine with fewer cores the larger plans would starve other tests.
    run(*plan, *settings, nice=19 if actors > 2 else 0)
    rows = metrics(tmp_path)
    assert max(float(row["episode_return"]) for row in rows) >= 150
    lags = [float(row["policy_lag"]) for row in rows]
    rhos = [float(row["rho"]) for row in rows]
    assert sum(lags) / len(lags) > 0
    assert sum(rhos) / len(rhos) < 1  # V-trace was really at work
