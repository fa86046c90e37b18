# SPDX-License-Identifier: MIT
"""The number that stands for types and shapes: alike in every process, else
different."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

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


def test_arrays_and_tensors_of_one_shape_give_one_number() -> None:
    torch = pytest.importorskip("torch")
    tensor = buffer_of(torch.zeros(2, 3), written=False)
    assert layout_of([tensor]) == layout([((2, 3), "f4")])


def test_another_interpreter_finds_the_same_numbers() -> None:
    program = (
        "from tests.learner.test_layouts import KINDS, layout; "
        "print([layout(kinds) for kinds in KINDS])"
    )
    said = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={"PATH": "", "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)},
    )
    assert said.stdout.strip() == str([layout(kinds) for kinds in KINDS])
