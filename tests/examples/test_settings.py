# SPDX-License-Identifier: MIT
"""Settings: nested dataclasses as one level of names, and ranges of numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import pytest

from impala import SettingsError, Within, check_ranges, flatten
from impala.settings import flag


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
    plain = {"share": 0.5, "count": None, "where": "runs/one"}
    assert flatten(Outer()) == {**plain, "steps": 10, "name": "any"}
    assert flag("max_lag") == "--max-lag"


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
    for right in (Outer(), Outer(Inner(0, 1)), Outer(Inner(1))):
        check_ranges(right)
    with pytest.raises(SettingsError, match=f"^{reason}$"):
        check_ranges(settings)
