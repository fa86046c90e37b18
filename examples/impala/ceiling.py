# SPDX-License-Identifier: MIT
"""`Ceiling`: the rates at which a machine could play and learn and do nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Protocol

import numpy as np
import torch

import mooactor as moo
from mooactor.rl import EnvRunner, Unroll, UnrollBuffer, Weights

WARM_UP_CALLS = 3


class Plays(Protocol):
    """An actor of the kind that a `Supply` asks, in this process."""

    halves: list[EnvRunner]

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
class StepCost:
    """Seconds of one core for each part of an agent step."""

    environment_s: float
    inference_s: float
    learning_s: float

    @property
    def total_s(self) -> float:
        """All parts together."""
        return self.environment_s + self.inference_s + self.learning_s

    def __str__(self) -> str:
        return (
            f"{self.environment_s * 1e6:.0f} us environment + "
            f"{self.inference_s * 1e6:.0f} us inference + "
            f"{self.learning_s * 1e6:.0f} us learning"
        )


@dataclass(frozen=True)
class Ceiling:
    """The rates that a machine could reach, in agent steps per second.

    ``alone`` was measured on one core with all others idle, ``together`` on every core
    at the same time, where the cores share caches and memory: a mean over the cores.
    ``loop_steps_per_s`` is the rate of a plain loop in one process that uses all cores
    for emulation and for torch.
    """

    alone: StepCost
    together: StepCost
    cores: int
    loop_steps_per_s: float

    @property
    def steps_per_s(self) -> float:
        """The ideal: all cores do only this work, each at the rate of one alone."""
        return self.cores / self.alone.total_s

    @property
    def together_steps_per_s(self) -> float:
        """The same at the cores' rate when all of them are at work."""
        return self.cores / self.together.total_s

    def __str__(self) -> str:
        return (
            f"ideal {self.steps_per_s:,.0f} steps/s = {self.cores} cores / "
            f"({self.alone}); with all cores at work "
            f"{self.together_steps_per_s:,.0f} = {self.cores} cores / "
            f"({self.together}); a loop in one process reaches "
            f"{self.loop_steps_per_s:,.0f}"
        )


@moo.actor
class Gauge:
    """Measures the cost of a step, in a process of its own."""

    def __init__(
        self,
        make_actor: Callable[[], Plays],
        make_learner: Callable[[], Learns],
        batch: int,
    ) -> None:
        self._player, self._learner = make_actor(), make_learner()
        self._player.adopt(0, self._learner.weights())
        self._unroll = self._player.play()
        self._local = min(batch, self._unroll.batch)

    @moo.method
    def cost(self, period_s: float) -> StepCost:
        """Each part by itself, for ``period_s`` each; environment first.

        Learning on a GPU counts until the GPU has finished it.
        """
        half, learner = self._player.halves[0], self._learner
        size, local = half.environments.num_envs, self._local
        columns = self._unroll.columns(0, local).to(learner.device)
        actions = np.zeros(size, np.int64)

        def step() -> None:
            half.environments.send(actions)
            half.observations = half.environments.recv().observations

        def infer() -> None:
            half.player.choose(half.observations, half.first)

        def learn() -> None:
            learner.learn(columns)
            if learner.device.type == "cuda":
                torch.cuda.synchronize(learner.device)  # it was only launched

        return StepCost(
            _seconds_per(step, period_s) / size,
            _seconds_per(infer, period_s) / size,
            _seconds_per(learn, period_s) / (local * self._unroll.steps),
        )

    @moo.method
    def loop(self, threads: int, period_s: float) -> float:
        """Seconds per step of a plain loop: play, learn, and again."""
        player, learner, buffer = self._player, self._learner, UnrollBuffer()
        local = self._local
        torch.set_num_threads(threads)

        def once() -> None:
            player.adopt(0, learner.weights())
            played = player.play()
            for start in range(0, played.batch - played.batch % local, local):
                part = played.columns(start, start + local)
                learner.learn(buffer.fill([part], learner.device))

        return _seconds_per(once, period_s) / (self._unroll.batch * self._unroll.steps)


def measure_ceiling(
    make_actor: Callable[[], Plays],
    make_learner: Callable[[], Learns],
    batch: int,
    cores: int,
    *,
    period_s: float = 3.0,
) -> Ceiling:
    """Time each part alone on one core, then on all, then all parts in a plain loop.

    Each core has a process of its own, in which an actor and a learner are made.
    ``batch`` is the number of environments B in a learner's updates. Each of the eight
    measurements takes ``period_s``.
    """
    gauges = moo.on(Gauge).group(cores, make_actor, make_learner, batch)
    try:
        gauges.call(Gauge.cost, 0.0).get()  # all of them exist, and are warm
        alone = gauges[0].cost(period_s)
        costs = gauges.call(Gauge.cost, period_s).get()
        loops = [gauges[0].loop(threads, period_s) for threads in (1, cores)]
    finally:
        for gauge in gauges:
            moo.stop(gauge)
    together = StepCost(
        *(float(np.mean(part)) for part in zip(*map(astuple, costs), strict=True))
    )
    return Ceiling(alone, together, cores, 1 / min(loops))


def _seconds_per(work: Callable[[], None], period_s: float) -> float:
    """Mean seconds of one call, after a few to warm up."""
    for _ in range(WARM_UP_CALLS):
        work()
    calls, started = 0, time.perf_counter()
    while calls == 0 or time.perf_counter() - started < period_s:
        work()
        calls += 1
    return (time.perf_counter() - started) / calls
