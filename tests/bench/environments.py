# SPDX-License-Identifier: MIT
"""Atari environments stepped through actors, beside the same in this process."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import mooactor as moo
from mooactor.cli.bench.measure import Effort, rate, turn_about
from mooactor.cli.bench.report import Goal, Row, Skipped
from mooactor.tensors.limits import processors

NAMES = ("atari.8",)
GAME = "breakout"
ENVIRONMENTS = 8
FRAMESKIP = 4
PEER = "in process"
Actions = np.ndarray[Any, np.dtype[np.int64]]


def emulator(environments: int, threads: int) -> Any:
    """ale-py's C++ vectoriser, reset and ready."""
    from ale_py.vector_env import AtariVectorEnv

    vector = AtariVectorEnv(GAME, environments, num_threads=threads)
    vector.reset(seed=0)
    return vector


@moo.actor
class Games:
    """Some environments; observations go back in shared memory."""

    def __init__(self, environments: int, threads: int) -> None:
        self._vector = emulator(environments, threads)

    @moo.method
    def step(self, actions: Actions) -> tuple[Any, Any, Any, Any]:
        observations, rewards, ended, cut, _ = self._vector.step(actions)
        return observations, rewards, ended, cut


def rows(effort: Effort) -> Iterator[Row | Skipped]:
    """Eight environments with a thread for each core, random actions."""
    if importlib.util.find_spec("ale_py") is None:
        yield Skipped("atari.8", "ale-py is not installed")
        return
    cores = processors()
    # an actor for each core: with more of them, calls take time from emulation
    actors = max(n for n in (1, 2, 4, ENVIRONMENTS) if n <= cores)
    with moo.init():
        here = emulator(ENVIRONMENTS, cores)
        whole = moo.spawn(Games, ENVIRONMENTS, cores)
        parts = moo.on(Games).group(actors, ENVIRONMENTS // actors, 1)
        yield from _compared(effort, here, whole, parts)


def _compared(
    effort: Effort, here: Any, whole: Games, parts: moo.Group[Games]
) -> Iterator[Row]:
    actions = np.random.default_rng(0).integers(0, 4, (256, ENVIRONMENTS))
    steps = effort.repeats(400)
    blocking, overlapped, inside = turn_about(
        effort.rounds,
        _frames(lambda t: whole.step(actions[t % 256]), steps),
        lambda: _overlapped(parts, actions, steps),
        _frames(lambda t: here.step(actions[t % 256]), steps),
    )
    name, unit, goal = "atari.8", "frames/s", Goal("at least", 0.95, PEER)
    peers = {PEER: inside}
    work = f"{ENVIRONMENTS} Atari environments in {len(parts)} actors, steps overlapped"
    yield Row(name, work, unit, overlapped, peers, goal)
    work = f"{ENVIRONMENTS} Atari environments in one actor, blocking steps"
    yield Row(name, work, unit, blocking, peers)


def _frames(step: Callable[[int], object], steps: int) -> Callable[[], float]:
    def run(count: int) -> None:
        for t in range(count):
            step(t)

    return lambda: rate(run, steps) * ENVIRONMENTS * FRAMESKIP


def _overlapped(parts: moo.Group[Games], actions: Actions, steps: int) -> float:
    """While one actor's observations are looked at, the others emulate."""
    columns = np.array_split(np.arange(ENVIRONMENTS), len(parts))

    def run(count: int) -> None:
        refs = [_start(parts[i], actions[0, c]) for i, c in enumerate(columns)]
        for t in range(1, count):
            for i, chosen in enumerate(columns):
                refs[i].get()
                refs[i] = _start(parts[i], actions[t % 256, chosen])
        moo.get(refs)

    return rate(run, steps) * ENVIRONMENTS * FRAMESKIP


def _start(games: Games, actions: Actions) -> moo.Ref[Any]:
    return games.step.remote(actions)
