# SPDX-License-Identifier: MIT
"""A learner's batches: cut and joined from what it takes, and never too old."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import mooactor as moo
from mooactor.rl import Batcher, Episode, Supply, Unroll
from tests.rl.test_unroll import assert_same, joined, random_unroll

pytestmark = pytest.mark.usefixtures("session")
CPU = torch.device("cpu")


def test_unrolls_are_cut_and_joined_to_batches() -> None:
    batcher = Batcher(None, 0, batch=6, max_lag=3)
    parts = [random_unroll(4) for _ in range(3)]
    batcher.pieces.extend(parts)
    whole = joined(parts)
    for start in (0, 6):
        batch = batcher.next_batch(3, CPU)
        expected = whole.columns(start, start + 6)
        assert torch.equal(batch.observations, expected.observations)
        assert torch.equal(batch.valid, expected.valid)
    assert not batcher.pieces


def test_unrolls_that_are_too_old_are_dropped_and_counted() -> None:
    batcher = Batcher(None, 0, batch=4, max_lag=3)
    old, fresh = random_unroll(4, version=6), random_unroll(4, version=7)
    batcher.pieces.extend([old, fresh])
    assert torch.equal(batcher.next_batch(10, CPU).actions, fresh.actions)
    counts, means = batcher.report()
    assert (counts.dropped, counts.lag_max, means) == (4, 3, {"policy_lag": 3.0})
    counts, means = batcher.report()
    assert (counts.dropped, counts.lag_max, means) == (0, 0, {})


def test_it_goes_on_from_its_state() -> None:
    batcher, other = (Batcher(None, 0, batch=2, max_lag=3) for _ in range(2))
    batcher.pieces.append(random_unroll(6))
    batcher.next_batch(3, CPU)
    other.load(batcher.state())
    assert len(other.pieces) == len(batcher.pieces) == 1
    for _ in range(2):
        assert_same(batcher.next_batch(3, CPU), other.next_batch(3, CPU))


@moo.actor
class Source:
    """Plays the same unroll again and again."""

    @moo.method
    def unroll(self, version: int | None = None) -> Unroll:
        unroll = random_unroll(3, version=5)
        unroll.busy_s, unroll.idle_s = 3.0, 1.0
        unroll.environment_s, unroll.inference_s = 1.5, 0.75
        return unroll


def test_what_comes_from_a_supply_is_counted(spawn: Callable[..., Any]) -> None:
    supply: Supply = spawn(Supply, 4)
    sources = [spawn(Source) for _ in range(2)]
    supply.start.remote(sources).get()
    batcher = Batcher(supply, 0, batch=6, max_lag=3)
    batch = batcher.next_batch(6, CPU)
    assert (batch.batch, batch.steps, batch.version) == (6, 5, 5)
    counts, means = batcher.report()
    assert counts.episodes == [Episode(1.0, 3)] * 2
    assert (counts.played, counts.lag_max, counts.lost_calls) == (30, 1, 0)
    queue = means.pop("queue")
    assert queue >= 0
    assert means == {
        "policy_lag": 1.0,
        "actor_busy": 0.75,
        "environment_share": 0.5,
        "inference_share": 0.25,
    }
