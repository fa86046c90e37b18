# SPDX-License-Identifier: MIT
"""Odd arguments: turned into what they mean, or refused where the user calls."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum, StrEnum
from fractions import Fraction
from pathlib import Path
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


@pytest.mark.parametrize("name", [["x"], b"x", 3, "", "a\0b", "x" * 1001, Plain.TEXT])
def test_what_is_no_name_is_refused_with_the_argument_named(
    session: Any, name: Any
) -> None:
    uses: list[Callable[[], object]] = [
        lambda: moo.on(Counter, name=name),
        lambda: moo.lookup(name),
        lambda: moo.LearnerGroup(name, min_size=1),
    ]
    for use in uses:
        with pytest.raises((TypeError, ValueError), match="name="):
            use()


def test_what_is_no_time_is_refused(spawn: Any) -> None:
    counter = spawn(Counter)
    for timeout in (math.nan, "3", True, [1]):
        with pytest.raises((TypeError, ValueError), match="timeout="):
            moo.lookup("nobody", timeout=timeout)  # type: ignore[arg-type]
        with pytest.raises((TypeError, ValueError), match="timeout="):
            moo.stop(counter, timeout=timeout)  # type: ignore[arg-type]
    assert counter.echo(1) == 1
    for forever in (math.inf, None, 1e300, np.float32(20)):
        found = moo.on(Counter, name="eternal").spawn()
        assert moo.lookup("eternal", timeout=forever) == found
        moo.kill(found)


def test_environment_variables_are_the_strings_that_they_are(spawn: Any) -> None:
    env = {Names.FIRST: Names.FIRST, "A": Plain.TEXT, "B": Text("b"), "C": Old.VALUE}
    reads = spawn(moo.on(Reads, env=env))
    found = reads.environment("first", "A", "B", "C")
    assert found == ["first", "text", "b", "old value"]


NO_AMOUNTS = (math.nan, math.inf, -0.5, True, "1", None, 1j, 1e20, 10**400)
REFUSED: list[tuple[str, Any, str]] = [
    ("env", {"A": 3}, r"env\['A'\] is 3, a int"),
    ("env", {"A": Plain.NUMBER}, r"env\['A'\]"),
    ("env", {"A": Path("/")}, r"env\['A'\]"),
    ("env", {"A": "a\0b"}, r"env\['A'\]"),
    ("env", {3: "A"}, "the key 3"),
    ("env", {"A=B": "C"}, "the key 'A=B'"),
    ("env", {"": "C"}, "the key ''"),
    ("env", "A=B", "env='A=B'"),
    ("env", ["A"], "env="),
    ("detached", "yes", "detached="),
    *[("restart", no, "restart=") for no in (3, True, {"max": 3}, "always")],
    *[
        (argument, no, f"{argument}=")
        for argument in ("num_cpus", "num_gpus", "memory")
        for no in NO_AMOUNTS
    ],
    ("num_gpus", 1.5, r"num_gpus=1\.5\b"),
]


def test_what_makes_no_sense_is_refused_with_the_argument_named() -> None:
    for argument, value, said in REFUSED:
        with pytest.raises((TypeError, ValueError), match=said):
            moo.on(Counter, **{argument: value})
    for n in (2.0, "2", None, True, -1):
        with pytest.raises((TypeError, ValueError), match="n="):
            moo.on(Counter).group(n)  # type: ignore[arg-type]
    assert len(moo.on(Counter).group(np.int64(0))) == 0


def test_amounts_may_be_numbers_of_any_kind(spawn: Any) -> None:
    for amount in (np.float64(1), np.int32(1), Fraction(1, 2)):
        assert spawn(moo.on(Counter, num_cpus=amount)).echo(1) == 1
    with pytest.raises(moo.PlacementError, match="elsewhere"):
        moo.on(Counter, host="elsewhere").spawn()
    with pytest.raises(moo.PlacementError, match="CPUs"):
        moo.on(Counter, num_cpus=100_000).spawn()


def test_a_policy_whose_numbers_make_no_sense_is_refused() -> None:
    refused: dict[str, list[Any]] = {
        "max": [1.5, True, "3", 1 << 70, -1],
        "within": [math.nan, 0, "60"],
        "backoff": [math.inf, math.nan, -1],
        "snapshot_every": [0, 0.5],
    }
    for field, values in refused.items():
        for value in values:
            with pytest.raises((TypeError, ValueError), match=field):
                moo.Restart(**{field: value})
