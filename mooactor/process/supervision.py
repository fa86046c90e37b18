# SPDX-License-Identifier: MIT
"""Restart policies, the rules of supervisors, and the events of an actor's life."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import msgspec

from mooactor.errors import Cause
from mooactor.process import checks

Strategy = Literal["one_for_one", "one_for_all", "rest_for_one"]
_STRATEGIES = get_args(Strategy)
When = Literal["always", "on_failure", "never"]


@dataclass(frozen=True)
class Restart:
    """Start a dead actor anew, at most ``max`` times ``within`` so many seconds.

    The new one is made by the same constructor call; if the class has
    ``__snapshot__`` and ``__restore__``, the last snapshot is restored into it. A
    snapshot is taken before the reply of each ``snapshot_every``-th call leaves, so
    with 1 (the default) no caller has seen a state that a restart takes back.
    ``backoff`` seconds pass before the first restart. Each restart that counts doubles
    them, up to a minute (or to ``backoff`` itself, if that is longer). An actor that
    was stopped or killed by its users stays away. While its host is away, or no host
    has room for it, the actor waits; that counts as no restart. No actor is restarted
    more than 65 535 times.

    Raises:
      TypeError: a field is no number.
      ValueError: a field is out of range.
    """

    max: int = 3
    within: float = 60.0
    backoff: float = 0.0
    snapshot_every: int = 1

    def __post_init__(self) -> None:
        for name in ("max", "snapshot_every"):
            _set(self, name, _count(name, getattr(self, name)))
        for name in ("within", "backoff"):
            _set(self, name, _seconds(name, getattr(self, name)))
        if self.max < 0 or self.within <= 0 or self.backoff < 0:
            raise ValueError(f"{self} has a negative number: use 0 or more")
        if math.isinf(self.backoff):
            raise ValueError("Restart(backoff=inf) never restarts; use restart=None")
        if self.snapshot_every < 1:
            raise ValueError(
                "snapshot_every is a number of calls and must be at least 1"
            )


#: Sets a field of a frozen class, to a number of Python's own types.
_set = object.__setattr__


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"Restart({name}={value!r}): a whole number is needed")
    if operator.index(value).bit_length() > 63:
        raise ValueError(f"Restart({name}={value!r}): the number is too large")
    return operator.index(value)


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__"):
        raise TypeError(f"Restart({name}={value!r}): a number of seconds is needed")
    if math.isnan(value):
        raise ValueError(f"Restart({name}=nan): a number of seconds is needed")
    return float(value)


@dataclass(frozen=True)
class Supervision:
    """The rules of a supervisor; `mooactor.Supervisor` explains them.

    Raises:
      TypeError, ValueError: a field makes no sense; the message names it.
    """

    strategy: Strategy = "one_for_one"
    max: int = 3
    within: float = 60.0
    backoff: float = 0.0
    longest_backoff: float = 60.0
    jitter: float = 0.5
    in_order: bool = True

    def __post_init__(self) -> None:
        _set(self, "strategy", checks.one_of("strategy", self.strategy, _STRATEGIES))
        what = "a number of restarts"
        _set(self, "max", checks.count("max", self.max, what, most=1 << 62))
        within = checks.seconds("within", self.within, positive=True)
        _set(self, "within", math.inf if within is None else within)
        for name in ("backoff", "longest_backoff", "jitter"):
            _set(self, name, checks.amount(name, getattr(self, name)))
        _set(self, "in_order", checks.flag("in_order", self.in_order))
        if self.longest_backoff < self.backoff:
            raise ValueError(
                f"longest_backoff={self.longest_backoff:g} must be at least "
                f"backoff={self.backoff:g}"
            )
        if self.jitter > 1:
            raise ValueError(f"jitter={self.jitter:g} must be a number from 0 to 1")

    def delay(self, before: int, drawn: float) -> float:
        """Seconds until a restart that comes after so many `before` it. `drawn`: a
        number from 0 to 1, for the jitter."""
        # 2 ** 1024 is no float.
        delay = min(self.backoff * 2.0 ** min(before, 60), self.longest_backoff)
        return delay * (1 - self.jitter * drawn)


class Event(msgspec.Struct, frozen=True):
    """Something happened to an actor. ``incarnation`` counts its restarts."""

    actor: str
    incarnation: int


class Started(Event, frozen=True):
    """Its constructor returned for the first time."""


class Died(Event, frozen=True):
    """Its process ended, and nobody had asked for that."""

    cause: Cause


class Restarted(Event, frozen=True):
    """It died, and its constructor returned again."""


class Stopped(Event, frozen=True):
    """It ended because someone stopped or killed it, or the session is over."""

    cause: Cause
