# SPDX-License-Identifier: MIT
"""Odd arguments are turned into what they mean."""

from __future__ import annotations

from enum import Enum, StrEnum
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from tests.actors.counter import Counter

pytestmark = pytest.mark.usefixtures("session")


class Names(StrEnum):
    FIRST = "first"


class Plain(Enum):
    TEXT = "text"
    NUMBER = 3


class Old(str, Enum):  # noqa: UP042  its `str()` is not its value
    VALUE = "old value"


class Text(str):
    pass


@moo.actor
class Reads:
    def environment(self, *names: str) -> list[str | None]:
        import os

        return [os.environ.get(name) for name in names]


def test_a_name_is_the_string_that_it_is(spawn: Any) -> None:
    for name in (Names.FIRST, Text("text"), Old.VALUE):
        counter = spawn(moo.on(Counter, name=name))
        assert moo.lookup(name) == moo.lookup(str.__str__(name)) == counter
        assert moo.actors()[-1].name == str.__str__(name)
        assert type(moo.actors()[-1].name) is str
    for long in ("x" * 300, "é" * 300, "with / and \n"):
        moo.LearnerGroup(long, min_size=1).leave()


def test_environment_variables_are_the_strings_that_they_are(spawn: Any) -> None:
    env = {Names.FIRST: Names.FIRST, "A": Plain.TEXT, "B": Text("b"), "C": Old.VALUE}
    reads = spawn(moo.on(Reads, env=env))
    found = reads.environment("first", "A", "B", "C")
    assert found == ["first", "text", "b", "old value"]


def test_amounts_may_be_numbers_of_any_kind(spawn: Any) -> None:
    for amount in (np.float64(1), np.int32(1), Fraction(1, 2)):
        assert spawn(moo.on(Counter, num_cpus=amount)).echo(1) == 1
    with pytest.raises(moo.PlacementError, match="elsewhere"):
        moo.on(Counter, host="elsewhere").spawn()
    with pytest.raises(moo.PlacementError, match="CPUs"):
        moo.on(Counter, num_cpus=100_000).spawn()
