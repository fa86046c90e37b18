# SPDX-License-Identifier: MIT
"""The supply of unrolls: how many calls are in flight, and what if an actor dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import mooactor as moo


@moo.actor
class Source:
    """Stands where an `Actor` would, and counts what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, bool]] = []

    def unroll(self, version: int, weights: Any = None) -> tuple[int, int]:
        if not self.asked and weights is None:
            raise LookupError("no weights yet")
        self.asked.append((version, weights is not None))
        return os.getpid(), len(self.asked)

    def history(self) -> list[tuple[int, bool]]:
        return self.asked


def test_supply_asks_in_order_and_sends_each_version_once(
    impala: ModuleType, spawn: Callable[..., Any]
) -> None:
    sources = [spawn(Source) for _ in range(2)]
    supply = impala.Supply(sources, prefetch=2, in_order=True)
    weights = moo.put({"w": 1})
    taken = [supply.take(0, weights) for _ in range(8)]
    assert [count for _, count in taken] == [1, 1, 2, 2, 3, 3, 4, 4]
    assert len(supply.calls) == 4
    supply.take(1, weights)
    moo.get(list(supply.calls))
    assert sources[0].history() == [(0, True), *[(0, False)] * 5, (1, True)]
    assert sources[1].history() == [(0, True), *[(0, False)] * 5]


def test_supply_goes_on_when_an_actor_is_killed(
    impala: ModuleType, spawn: Callable[..., Any]
) -> None:
    spec = moo.on(Source, restart=moo.Restart(max=3, within=60))
    supply = impala.Supply([spawn(spec), spawn(Source)], 2, in_order=False)
    weights = moo.put({"w": 1})
    pids: set[int] = set()
    while len(pids) < 2:
        pids.add(supply.take(0, weights)[0])
    killed = supply.actors[0].unroll(0, weights)[0]
    os.kill(killed, signal.SIGKILL)
    seen: set[int] = set()
    while len(seen - pids) == 0:
        seen.add(supply.take(0, weights)[0])
    assert supply.lost > 0
    assert len(supply.calls) == 4


def test_supply_gives_up_on_an_actor_that_stays_away(
    impala: ModuleType, spawn: Callable[..., Any]
) -> None:
    source = spawn(Source)  # without a restart policy
    supply = impala.Supply([source], 2, in_order=True)
    weights = moo.put({"w": 1})
    os.kill(supply.take(0, weights)[0], signal.SIGKILL)
    with pytest.raises(moo.ActorDied, match="signal 9"):
        while True:
            supply.take(0, weights)
