# SPDX-License-Identifier: MIT
"""`Ceiling`: how fast a machine could play and learn if it did nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from mooactor import actor, method, spawn, stop
from mooactor.rl.acting import Half
from mooactor.rl.parameters import Weights
from mooactor.rl.unroll import Unroll, UnrollBuffer

WARM_UP_CALLS = 3


class Plays(Protocol):
    """An actor of the kind that a `Supply` asks, in this process."""

    halves: list[Half]

    def adopt(self, version: int, weights: Weights, /) -> None:
        """Play with ``weights`` from now on."""

    def play(self) -> Unroll:
        """T steps in all environments."""


class Learns(Protocol):
    """A learner, in this process and alone."""

    device: torch.device

    def learn(self, batch: Unroll, /) -> object:
        """Make one update from ``batch``, which is on ``device``."""

    def weights(self) -> Weights:
        """The parameters, on the CPU."""


@dataclass(frozen=True)
class Ceiling:
    """Seconds per agent step on one core for each part of the work, and the rate of a
    plain loop in one process that uses all cores for emulation and for torch."""

    environment_s: float
    inference_s: float
    learning_s: float
    cores: int
    loop_steps_per_s: float

    @property
    def steps_per_s(self) -> float:
        """The ideal: all cores always at this work, and at nothing else."""
        return self.cores / (self.environment_s + self.inference_s + self.learning_s)

    def __str__(self) -> str:
        return (
            f"ideal {self.steps_per_s:,.0f} steps/s = {self.cores} cores / "
            f"({self.environment_s * 1e6:.0f} us environment + "
            f"{self.inference_s * 1e6:.0f} us inference + "
            f"{self.learning_s * 1e6:.0f} us learning); "
            f"a loop in one process reaches {self.loop_steps_per_s:,.0f}"
        )


@actor
class Gauge:
    """Measures a `Ceiling` in a process of its own."""

    @method
    def measure(
        self,
        make_actor: Callable[[], Plays],
        make_learner: Callable[[], Learns],
        batch: int,
        cores: int,
        period_s: float,
    ) -> Ceiling:
        """See `measure_ceiling`."""
        return _measure(make_actor(), make_learner(), batch, cores, period_s)


def measure_ceiling(
    make_actor: Callable[[], Plays],
    make_learner: Callable[[], Learns],
    batch: int,
    cores: int,
    *,
    period_s: float = 3.0,
) -> Ceiling:
    """Time each part alone on one core, then all of them in a plain loop.

    This is done in a process of its own, where actor and learner are made. ``batch`` is
    the number of environments B in a learner's updates. Each of the five measurements
    takes ``period_s``.
    """
    gauge = spawn(Gauge)
    try:
        return gauge.measure(make_actor, make_learner, batch, cores, period_s)
    finally:
        stop(gauge)


def _measure(
    player: Plays, learner: Learns, batch: int, cores: int, period_s: float
) -> Ceiling:
    player.adopt(0, learner.weights())
    unroll = player.play()
    half, buffer = player.halves[0], UnrollBuffer()
    size = half.environments.num_envs
    local = min(batch, unroll.batch)
    columns = unroll.columns(0, local).to(learner.device)
    actions = np.zeros(size, np.int64)

    def step() -> None:
        half.environments.send(actions)
        half.observations = half.environments.recv().observations

    def infer() -> None:
        half.player.choose(half.observations, half.first)

    def learn() -> None:
        learner.learn(columns)

    def loop() -> None:
        player.adopt(0, learner.weights())
        played = player.play()
        for start in range(0, played.batch - played.batch % local, local):
            part = played.columns(start, start + local)
            learner.learn(buffer.fill([part], learner.device))

    environment_s = _seconds_per(step, period_s) / size
    inference_s = _seconds_per(infer, period_s) / size
    learning_s = _seconds_per(learn, period_s) / (local * unroll.steps)
    loop_s = []
    for threads in (1, cores):  # which is better depends on the machine's load
        torch.set_num_threads(threads)
        loop_s.append(_seconds_per(loop, period_s) / (unroll.batch * unroll.steps))
    return Ceiling(environment_s, inference_s, learning_s, cores, 1 / min(loop_s))


def _seconds_per(work: Callable[[], None], period_s: float) -> float:
    """Mean seconds of one call, after a few to warm up."""
    for _ in range(WARM_UP_CALLS):
        work()
    calls, started = 0, time.perf_counter()
    while calls == 0 or time.perf_counter() - started < period_s:
        work()
        calls += 1
    return (time.perf_counter() - started) / calls
