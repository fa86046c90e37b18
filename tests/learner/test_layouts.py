# SPDX-License-Identifier: MIT
"""The number that stands for types and shapes: alike in every process, else
different."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.learner.arguments import keys_of
from mooactor.learner.buffers import buffer_of, layout_of

ROOT = Path(__file__).parents[2]

KINDS: list[list[tuple[tuple[int, ...], str]]] = [
    [],
    [((), "f4")],
    [((6,), "f4")],
    [((6,), "f8")],
    [((2, 3), "f4")],
    [((3, 2), "f4")],
    [((2,), "f4"), ((3,), "f4")],
    [((3,), "f4"), ((2,), "f4")],
    [((1, 6), "f4")],
]


def layout(kinds: Sequence[tuple[tuple[int, ...], str]]) -> int:
    arrays = [np.zeros(shape, dtype) for shape, dtype in kinds]
    return layout_of([buffer_of(array, written=False) for array in arrays])


def test_other_shapes_types_or_orders_give_other_numbers() -> None:
    numbers = [layout(kinds) for kinds in KINDS]
    assert len(set(numbers)) == len(KINDS)
    assert all(0 <= number < 1 << 64 for number in numbers)


KEYS: list[tuple[object, ...]] = [
    (),
    ("a", "b"),
    ("a", "c"),
    ("ab",),
    ("a b",),
    (1, 2),
    (12,),
    (("a", 1), ("b", 2)),
    ("\N{SNOWMAN}", "\U0001fae9\ud800"),  # of newer versions of Unicode, or of none
]


def test_other_keys_give_other_numbers() -> None:
    assert len({layout_of((), keys) for keys in KEYS}) == len(KEYS)
    assert layout_of((), ()) == layout([])


class Color(enum.StrEnum):
    RED = "red"


def test_keys_are_compared_as_plain_values() -> None:
    def keys(*given: object) -> tuple[object, ...]:
        found = keys_of(dict.fromkeys(given))
        assert all(type(key) in (str, int, tuple) for key in found)
        return found

    assert keys("red") == keys(Color.RED) == keys(np.str_("red"))
    assert keys(2, 1) == keys(np.int64(1), 2) == (1, 2)
    assert keys(("b", True), ("a", 2)) == (("a", 2), ("b", 1))
    assert keys_of([1, 2]) == ()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((1, "a"), "all strings, or all integers.* these are int and str"),
        ((None,), "must be strings.* None is of type NoneType"),
        ((0.5,), "must be strings.* 0.5 is of type float"),
    ],
)
def test_keys_that_cannot_be_compared_are_refused(
    session: Any, given: tuple[Any, ...], words: str
) -> None:
    with moo.LearnerGroup("keys", min_size=1) as group:
        with pytest.raises(TypeError, match=words):
            group.allreduce({key: np.ones(3) for key in given})
        assert group.statistics()["pending"] == 0


def test_out_has_the_keys_of_the_tensors(session: Any) -> None:
    a, b = np.ones(3), np.full(3, 2.0)
    with moo.LearnerGroup("keys-of-out", min_size=1) as group:
        for out in ({"b": np.zeros(3), "c": np.zeros(3)}, [np.zeros(3), np.zeros(3)]):
            with pytest.raises(ValueError, match="keys of the tensors: 'a' is in one"):
                group.allreduce({"a": a, "b": b}, op="sum", out=out)
        out = {"b": np.zeros(3), "a": np.zeros(3)}
        group.allreduce({"a": a, "b": b}, op="sum", out=out).wait()
        assert out["a"].tolist() == a.tolist() and out["b"].tolist() == b.tolist()


def _with_keys(group: Any, keys: Any) -> tuple[list[str], list[float]]:
    """The errors of an allreduce and a broadcast, and the first element of each."""
    own, said = keys[group.rank], []
    tensors = [np.full(2, float(value)) for value in own.values()]
    for call in (group.allreduce, group.broadcast):
        try:
            call(dict(zip(own, tensors))).wait()
        except ValueError as error:
            said.append(str(error))
    return said, [tensor[0] for tensor in tensors]


def test_members_with_other_keys_are_told_so(members: Any) -> None:
    keys = [{"head": 1, "trunk": 10}, {"trunk": 10, "value": 100}]
    found = members(2).run.call(_with_keys, keys).get()
    assert [values for _, values in found] == [[1.0, 10.0], [10.0, 100.0]]
    for said, _ in found:
        assert len(said) == 2
        assert all("with other shapes, types or keys" in text for text in said)


def test_keys_may_come_in_any_order(members: Any) -> None:
    keys = [{"head": 1, "trunk": 10}, {"trunk": 30, "head": 3}]
    found = members(2).run.call(_with_keys, keys).get()
    assert found == [([], [2.0, 20.0]), ([], [20.0, 2.0])]
