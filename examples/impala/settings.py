# SPDX-License-Identifier: MIT
"""Settings: frozen dataclasses that a program nests in one, and turns into flags.

A part of this package that has settings defines them (`EnvironmentSettings`,
`LayoutSettings`, `RunSettings`, `EvaluationSettings`); those of the parts of
`mooactor.rl` are here. Names are the same with and without nesting, because a program
gives all of them as flags on one level.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from mooactor.rl import ActorCritic, ModelName, make_network


class SettingsError(ValueError):
    """Settings that cannot work. The message is one sentence, which names the flag."""


@dataclass(frozen=True)
class Within:
    """The range of a number, ends included, for ``Annotated[int, Within(1)]``."""

    least: float
    most: float = math.inf

    def __str__(self) -> str:
        least = f"{self.least:g}"
        return (
            f"at least {least}"
            if self.most == math.inf
            else f"{least} to {self.most:g}"
        )


def flag(name: str) -> str:
    """``max_lag`` is ``--max-lag``."""
    return f"--{name.replace('_', '-')}"


def flatten(settings: Any) -> dict[str, Any]:
    """All settings of a dataclass by name, with those of nested dataclasses.

    The values are plain: a path is its text.
    """
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value, _ in _walk(settings)
    }


def check_ranges(settings: Any) -> None:
    """Compare each number with the `Within` of its annotation; None is always right.

    Raises:
      SettingsError: a number is outside its range, or is NaN.
    """
    for name, value, hint in _walk(settings):
        for limits in getattr(hint, "__metadata__", ()):
            if not isinstance(limits, Within) or value is None:
                continue
            if not limits.least <= value <= limits.most:
                raise SettingsError(f"{flag(name)} {value}: it must be {limits}")


def _walk(settings: Any) -> Iterator[tuple[str, Any, Any]]:
    """(name, value, annotation) of each setting."""
    hints = get_type_hints(type(settings), include_extras=True)
    for entry in fields(settings):
        value = getattr(settings, entry.name)
        if is_dataclass(value):
            yield from _walk(value)
        else:
            yield entry.name, value, hints[entry.name]


@dataclass(frozen=True)
class NetworkSettings:
    """Which network it is."""

    model: ModelName = "auto"
    """Network: shallow and deep are those of the IMPALA paper, mlp is for vectors; auto
    takes shallow for images and mlp for all else."""
    lstm: bool = False
    """Put an LSTM between the network's body and its heads."""

    def make(self, shape: Sequence[int], actions: int) -> ActorCritic:
        """See `make_network`."""
        return make_network(self.model, shape, actions, lstm=self.lstm)


@dataclass(frozen=True)
class SupplySettings:
    """The limits of a supply: unrolls in flight, their age, and their order."""

    lag: Annotated[int, Within(1)] = 8
    """Updates of policy lag to allow for: at most lag times batch unrolls are in flight
    from the actors to the learners."""
    max_lag: Annotated[int, Within(0)] = 50
    """Unrolls older than this many updates, as those of an actor that was stopped for a
    while, are dropped, and counted."""
    deterministic: bool = False
    """One call in flight and a fixed order: the same seed gives the same curve."""
