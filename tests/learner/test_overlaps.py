# SPDX-License-Identifier: MIT
"""Tensors that share memory: refused before anything is sent, or right by order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.learner.places import place_of
from tests import kinds

torch = pytest.importorskip("torch")


def _matrix() -> Any:
    return np.arange(24.0).reshape(4, 6)


def refused() -> list[tuple[Any, Any, str]]:
    """Tensors, their results, and the words of the refusal."""
    tensor, array, matrix, out = torch.ones(9), np.ones(10), _matrix(), np.ones(4)
    a, b = np.ones(4), np.ones(4)
    row = {"all": matrix, "row": matrix[2, ::2]}
    expanded = torch.ones(3, 1).expand(3, 10**9)
    windows = np.lib.stride_tricks.as_strided(array, (8, 3), (8, 8))
    return [
        ([torch.ones(2), tensor, tensor], None, "tensor 1 and tensor 2 share memory"),
        ([array[:6], array[4:]], None, "tensor 0 and tensor 1 share memory"),
        (row, None, "tensor 'all' and tensor 'row' share memory"),
        ([tensor, tensor.numpy()], None, "tensor 0 and tensor 1 share memory"),
        ([array[:8]], [array[2:]], "result 0 of out= and tensor 0 share"),
        ([a, b], [b, a], "result . of out= and tensor . share"),
        ([a, b], [out, out], "result 0 of out= and result 1 of out= share"),
        ([torch.ones(3), expanded], None, "tensor 1: its elements share memory"),
        ([windows], None, "tensor 0: its elements share memory"),
    ]


@pytest.fixture(scope="module")
def alone(session: Any) -> Any:
    with moo.LearnerGroup("overlaps", min_size=1, timeout=20.0) as group:
        yield group


def test_what_shares_memory_is_refused_and_nothing_is_sent(alone: Any) -> None:
    for tensors, out, words in refused():
        with pytest.raises(ValueError, match=words) as told:
            alone.allreduce(tensors, op="sum", out=out)
        assert "\n" not in str(told.value)
        assert alone.statistics()["pending"] == 0
        alone.allreduce(np.ones(3)).wait()


def test_disjoint_views_of_one_memory_are_taken(alone: Any) -> None:
    matrix, tensor = _matrix(), torch.arange(24.0).view(4, 6)
    parts = [matrix[:, :2], matrix[:, 2:], tensor[::2], tensor[1::2], np.ones(0)]
    alone.allreduce(parts, op="sum").wait()
    assert matrix.tolist() == _matrix().tolist() == tensor.tolist()


def test_a_result_may_replace_its_own_tensor(alone: Any) -> None:
    for array in (np.ones(5), np.ones((3, 4))[:, ::2], torch.ones(4, 3).t()):
        assert alone.allreduce([array], op="sum", out=[array]).result()[0] is array


def test_places_share_what_their_elements_share() -> None:
    random = np.random.default_rng(4)
    memory = np.zeros(400, np.int16)
    start = memory.__array_interface__["data"][0]
    seen = set()
    for _ in range(400):
        views = [
            memory[a : a + 80].reshape(8, 10)[::s, ::t]
            for a, s, t in zip(
                random.integers(0, 320, 2),
                random.choice([-2, 1, 3], 2),
                random.choice([-3, 2], 2),
            )
        ]
        places = [
            place_of("", v.__array_interface__["data"][0], v.shape, v.strides, 2, "i2")
            for v in views
        ]
        bytes_of = [
            {p.start - start + int(np.dot(i, p.strides)) for i in np.ndindex(p.shape)}
            for p in places
        ]
        shared = bool(bytes_of[0] & bytes_of[1])
        assert places[0].shares(places[1]) is shared
        assert not places[0].repeats()
        seen.add(shared)
    assert seen == {True, False}


# -- several operations in a queue -------------------------------------------


def _distinct(tensor: Any) -> list[float]:
    return sorted(set(np.ravel(kinds.values(tensor)).tolist()))


def _doubled_twice(group: Any) -> Any:
    """Two queued sums of each layout; the second must see the first."""
    seen = {}
    for name, view in LAYOUTS.items():
        tensor = view()
        group.allreduce(tensor, op="sum")  # its work is dropped
        group.allreduce(tensor, op="sum").wait()
        seen[name] = _distinct(tensor)
        tensor = view()
        first = group.allreduce(tensor, op="sum")
        rows = group.all_gather(tensor)
        first.wait()
        assert _distinct(rows.result()) == [float(group.size)]
    return seen


LAYOUTS: dict[str, Callable[[], Any]] = {
    "contiguous": lambda: np.ones((4, 6)),
    "strided": lambda: np.ones((4, 6))[:, ::2],
    "byte-swapped": lambda: np.ones((4, 6), ">f4"),
    "transposed": lambda: torch.ones(4, 6).t(),
    "negated": lambda: torch.full((4,), -1j).conj().imag,
}


def test_a_queued_operation_works_on_the_result_of_the_one_before(members: Any) -> None:
    for seen in members(2, timeout=20.0).run.call(_doubled_twice).get():
        assert seen == {name: [4.0] for name in LAYOUTS}


def test_an_overlap_with_a_queued_result_is_refused(alone: Any) -> None:
    matrix = np.ones((4, 6))
    for first, second in ((matrix.T, matrix), (matrix, matrix[:, ::2])):
        work = alone.allreduce(first, op="sum")
        with pytest.raises(ValueError, match=r"wait for allreduce\(sum\) first"):
            alone.allreduce(second, op="sum")
        work.wait()
        alone.allreduce(second, op="sum").wait()


def test_what_cannot_be_copied_back_is_told_to_its_own_work(alone: Any) -> None:
    array = np.ones((4, 6))[:, ::2]
    work = alone.allreduce(array, op="sum")
    array.flags.writeable = False
    alone.allreduce(np.ones(3)).wait()
    with pytest.raises(ValueError, match="read-only"):
        work.wait()
