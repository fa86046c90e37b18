# SPDX-License-Identifier: MIT
"""Settings: nested dataclasses as one level of names, and ranges of numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import pytest

from mooactor.rl import SettingsError, Within, check_ranges, flag, flatten


@dataclass(frozen=True)
class Inner:
    share: Annotated[float, Within(0, 1)] = 0.5
    count: Annotated[int | None, Within(1)] = None
    where: Path = Path("runs/one")


@dataclass(frozen=True)
class Outer:
    inner: Inner = field(default_factory=Inner)
    steps: Annotated[int, Within(1)] = 10
    name: str = "any"


def test_nested_settings_are_on_one_level_and_plain() -> None:
    assert flatten(Outer()) == {
        "share": 0.5,
        "count": None,
        "where": "runs/one",
        "steps": 10,
        "name": "any",
    }


@pytest.mark.parametrize("settings", [Outer(), Outer(Inner(0, 1)), Outer(Inner(1))])
def test_numbers_within_their_range_are_right(settings: Outer) -> None:
    check_ranges(settings)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (Outer(steps=0), "--steps 0: it must be at least 1"),
        (Outer(Inner(share=1.5)), "--share 1.5: it must be 0 to 1"),
        (Outer(Inner(share=math.nan)), "--share nan: it must be 0 to 1"),
        (Outer(replace(Inner(), count=-2)), "--count -2: it must be at least 1"),
    ],
)
def test_a_number_outside_its_range_is_named(settings: Outer, reason: str) -> None:
    with pytest.raises(SettingsError, match=f"^{reason}$"):
        check_ranges(settings)


def test_a_flag_is_the_name_with_dashes() -> None:
    assert flag("max_lag") == "--max-lag"
