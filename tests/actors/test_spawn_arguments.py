# SPDX-License-Identifier: MIT
"""Odd arguments: turned into what they mean, or refused where the user calls."""

from __future__ import annotations

import math
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.host.restarts import LONGEST_BACKOFF_S, RestartBudget
from tests.actors.counter import Counter


class Names(StrEnum):
    FIRST = "first"


class Plain(Enum):
    TEXT = "text"
    NUMBER = 3


class Old(str, Enum):  # noqa: UP042  its `str()` is not its value
    VALUE = "old value"


class Text(str):
    pass


class Policy(moo.Restart):
    """A subclass with more than the agent knows of."""

    extra = object()


@moo.actor
class Reads:
    def environment(self, *names: str) -> list[str | None]:
        import os

        return [os.environ.get(name) for name in names]


def alive(counter: Any) -> bool:
    return bool(counter.echo(1) == 1)


@pytest.mark.parametrize("name", [Names.FIRST, Text("first"), Old.VALUE])
def test_a_name_is_the_string_that_it_is(spawn: Any, name: str) -> None:
    counter = spawn(moo.on(Counter, name=name))
    assert moo.lookup(name) == moo.lookup(str.__str__(name)) == counter
    assert moo.actors()[-1].name == str.__str__(name)
    assert type(moo.actors()[-1].name) is str


@pytest.mark.parametrize("name", [["x"], b"x", 3, "", "a\0b", "x" * 1001, Plain.TEXT])
def test_what_is_no_name_is_refused_with_the_argument_named(
    session: Any, name: Any
) -> None:
    for use in (lambda: moo.on(Counter, name=name), lambda: moo.lookup(name)):
        with pytest.raises((TypeError, ValueError), match="name="):
            use()
    with pytest.raises((TypeError, ValueError), match="name="):
        moo.LearnerGroup(name, min_size=1)


@pytest.mark.parametrize("name", ["x" * 300, "é" * 300, "with / and \n"])
def test_a_learner_group_may_have_any_name(session: Any, name: str) -> None:
    moo.LearnerGroup(name, min_size=1).leave()


@pytest.mark.parametrize("timeout", [math.nan, "3", True, [1]])
def test_what_is_no_time_is_refused(spawn: Any, timeout: Any) -> None:
    counter = spawn(Counter)
    with pytest.raises((TypeError, ValueError), match="timeout="):
        moo.lookup("nobody", timeout=timeout)
    with pytest.raises((TypeError, ValueError), match="timeout="):
        moo.stop(counter, timeout=timeout)
    assert alive(counter)


@pytest.mark.parametrize("timeout", [math.inf, None, 1e300, np.float32(20)])
def test_a_lookup_may_wait_for_ever(spawn: Any, timeout: Any) -> None:
    @moo.actor
    class Finder:
        def find(self, timeout: float | None) -> int:
            return int(moo.lookup("eternal", timeout=timeout).add(0))

    ref = spawn(Finder).find.remote(timeout)
    spawn(moo.on(Counter, name="eternal"), 9)
    assert ref.get(timeout=20) == 9


def test_environment_variables_are_the_strings_that_they_are(spawn: Any) -> None:
    env = {Names.FIRST: Names.FIRST, "A": Plain.TEXT, "B": Text("b"), "C": Old.VALUE}
    reads = spawn(moo.on(Reads, env=env))
    found = reads.environment("first", "A", "B", "C")
    assert found == ["first", "text", "b", "old value"]


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"A": 3}, r"env\['A'\] is 3, a int"),
        ({"A": Plain.NUMBER}, r"env\['A'\]"),
        ({"A": None}, r"env\['A'\] is None"),
        ({"A": Path("/")}, r"env\['A'\]"),
        ({"A": "a\0b"}, r"env\['A'\]"),
        ({3: "A"}, "the key 3"),
        ({"A=B": "C"}, "the key 'A=B'"),
        ({"": "C"}, "the key ''"),
        ("A=B", "env='A=B'"),
        (["A"], "env="),
    ],
)
def test_what_is_no_environment_is_refused(env: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        moo.on(Counter, env=env)


@pytest.mark.parametrize("argument", ["num_cpus", "num_gpus", "memory"])
@pytest.mark.parametrize(
    "amount", [math.nan, math.inf, -0.5, True, "1", None, 1j, 1e20, 10**30, 10**400]
)
def test_what_is_no_amount_is_refused(argument: str, amount: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=f"{argument}="):
        moo.on(Counter, **{argument: amount})


@pytest.mark.parametrize("amount", [np.float64(1), np.int32(1), Fraction(1, 2)])
def test_amounts_may_be_numbers_of_any_kind(spawn: Any, amount: Any) -> None:
    assert alive(spawn(moo.on(Counter, num_cpus=amount)))


@pytest.mark.parametrize("restart", [3, True, {"max": 3}, "always", moo.Restart])
def test_what_is_no_policy_is_refused(restart: Any) -> None:
    with pytest.raises(TypeError, match="restart="):
        moo.on(Counter, restart=restart)


@pytest.mark.parametrize(
    "fields",
    [
        {"max": 1.5},
        {"max": True},
        {"max": "3"},
        {"max": 1 << 70},
        {"within": math.nan},
        {"within": 0},
        {"within": "60"},
        {"backoff": math.inf},
        {"backoff": math.nan},
        {"backoff": -1},
        {"snapshot_every": 0.5},
    ],
    ids=str,
)
def test_a_policy_whose_numbers_make_no_sense_is_refused(fields: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=next(iter(fields))):
        moo.Restart(**fields)


class Count(IntEnum):
    TWO = 2


@pytest.mark.parametrize(
    "policy",
    [
        Policy(max=2),
        moo.Restart(max=Count.TWO, within=np.float32(60)),
        moo.Restart(max=np.int64(2), snapshot_every=np.int8(1)),
        moo.Restart(max=2, within=math.inf),
        moo.Restart(max=(1 << 63) - 1, within=1e300),
    ],
    ids=range(5),  # type: ignore[arg-type]
)
def test_a_policy_counts_by_its_fields(spawn: Any, policy: moo.Restart) -> None:
    counter = spawn(moo.on(Counter, restart=policy))
    with pytest.raises(moo.ActorRestarted):
        counter.kill_self()
    assert alive(counter)


def test_the_back_off_of_a_long_crash_loop_is_bounded() -> None:
    policy = moo.Restart(max=5000, within=math.inf, backoff=0.01)
    budget = RestartBudget(policy)
    delays = [budget.take(float(now)) for now in range(5000)]
    assert delays[:3] == [0.01, 0.02, 0.04]
    assert delays[-1] == LONGEST_BACKOFF_S
    assert budget.take(5000.0) is None
    slow = RestartBudget(moo.Restart(backoff=100.0))
    assert [slow.take(0.0), slow.take(1.0)] == [100.0, 100.0]


def test_a_group_of_no_number_is_refused(session: Any) -> None:
    for n in (2.0, "2", None, True, -1):
        with pytest.raises((TypeError, ValueError), match="n="):
            moo.on(Counter).group(n)  # type: ignore[arg-type]
    assert len(moo.on(Counter).group(np.int64(0))) == 0


def test_detached_is_a_truth_value() -> None:
    with pytest.raises(TypeError, match="detached="):
        moo.on(Counter, detached="yes")  # type: ignore[arg-type]
