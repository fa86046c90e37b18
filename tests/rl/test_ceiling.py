# SPDX-License-Identifier: MIT
"""What a machine could do if it did nothing else."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import Tensor

from mooactor.rl import (
    EnvironmentSettings,
    Half,
    Player,
    Unroll,
    Weights,
    empty_unroll,
    make_network,
    measure_ceiling,
)
from mooactor.rl.ceiling import Gauge

STEPS, SIZE, UPDATE_S = 4, 3, 0.02


class Playing:
    """Plays CartPole with a small network."""

    def __init__(self) -> None:
        self.network = make_network("mlp", (4,), 2)
        environments = EnvironmentSettings("CartPole-v1").make(SIZE)
        player = Player(self.network, 2, SIZE, 1)
        self.halves = [Half(environments, player, slice(0, SIZE), 1)]

    def adopt(self, version: int, weights: Weights) -> None:
        self.network.load_state_dict(weights)

    def play(self) -> Unroll:
        def allocate(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype)

        (half,) = self.halves
        unroll = empty_unroll(self.halves, STEPS, allocate)
        for row in range(STEPS):
            half.observe(unroll, row)
            half.send(unroll, row)
            half.receive(unroll, row)
        half.observe(unroll, STEPS)
        return unroll


class Sleeping:
    """Takes a known time for each update."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self.network = make_network("mlp", (4,), 2)

    def learn(self, batch: Unroll) -> None:
        assert batch.actions.shape == (STEPS, 2)
        time.sleep(UPDATE_S)

    def weights(self) -> Weights:
        return self.network.state_dict()


def test_an_update_of_a_gpu_counts_until_the_gpu_has_finished_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[object] = []

    class Launching(Sleeping):
        def __init__(self) -> None:
            super().__init__()
            self.device = torch.device("cuda", 1)  # there need be none

        def learn(self, batch: Unroll) -> None:
            calls.append("learn")

    def stay(unroll: Unroll, device: Any) -> Unroll:
        return unroll

    monkeypatch.setattr(Unroll, "to", stay)
    monkeypatch.setattr(torch.cuda, "synchronize", calls.append)
    Gauge(Playing, Launching, 2).cost(0.0)
    assert len(calls) > 0
    assert calls == ["learn", torch.device("cuda", 1)] * (len(calls) // 2)


@pytest.mark.slow
@pytest.mark.usefixtures("session")
def test_each_part_is_measured_for_a_step_and_a_core() -> None:
    ceiling = measure_ceiling(Playing, Sleeping, batch=2, cores=2, period_s=0.1)
    for cost in (ceiling.alone, ceiling.together):
        assert cost.learning_s >= UPDATE_S / (2 * STEPS)
        parts_s = cost.environment_s + cost.inference_s + cost.learning_s
        assert 0 < cost.environment_s < parts_s
        assert cost.total_s == pytest.approx(parts_s)
    assert ceiling.steps_per_s == pytest.approx(2 / ceiling.alone.total_s)
    together = pytest.approx(2 / ceiling.together.total_s)
    assert ceiling.together_steps_per_s == together
    # the loop learns from two of three environments, and does all else as well
    assert ceiling.loop_steps_per_s < SIZE * STEPS / UPDATE_S
    assert str(ceiling).startswith("ideal ") and "= 2 cores / (" in str(ceiling)
