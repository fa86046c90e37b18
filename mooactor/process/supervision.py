# SPDX-License-Identifier: MIT
"""Restart policies, and the events of an actor's life."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from mooactor.errors import Cause


@dataclass(frozen=True)
class Restart:
    """Start a dead actor anew, at most ``max`` times ``within`` so many seconds.

    The new one is made by the same constructor call; if the class has
    ``__snapshot__`` and ``__restore__``, the last snapshot is restored into it. A
    snapshot is taken before the reply of each ``snapshot_every``-th call leaves, so
    with 1 (the default) no caller has seen a state that a restart takes back.
    ``backoff`` seconds pass before the first restart, doubling with each one that
    counts. An actor that was stopped or killed by its users stays away.
    """

    max: int = 3
    within: float = 60.0
    backoff: float = 0.0
    snapshot_every: int = 1

    def __post_init__(self) -> None:
        if self.max < 0 or self.within <= 0 or self.backoff < 0:
            raise ValueError(f"{self} makes no sense: numbers must not be negative")
        if self.snapshot_every < 1:
            raise ValueError("snapshot_every counts calls and is at least 1")


class RestartBudget:
    """How many restarts a policy still allows; times are monotonic seconds."""

    def __init__(self, policy: Restart | None) -> None:
        self._policy = policy
        self._times: deque[float] = deque()

    def take(self, now: float) -> float | None:
        """Seconds to wait before the next restart; None if there is to be none."""
        policy = self._policy
        if policy is None:
            return None
        while self._times and now - self._times[0] > policy.within:
            self._times.popleft()
        if len(self._times) >= policy.max:
            return None
        delay = policy.backoff * 2.0 ** len(self._times)
        self._times.append(now)
        return float(delay)


@dataclass(frozen=True)
class Event:
    """Something happened to an actor. ``incarnation`` counts its restarts."""

    actor: str
    incarnation: int


@dataclass(frozen=True)
class Started(Event):
    """Its constructor returned for the first time."""


@dataclass(frozen=True)
class Died(Event):
    """Its process ended, and nobody had asked for that."""

    cause: Cause


@dataclass(frozen=True)
class Restarted(Event):
    """It died, and its constructor returned again."""


@dataclass(frozen=True)
class Stopped(Event):
    """It ended because someone stopped or killed it, or the session is over."""

    cause: Cause
