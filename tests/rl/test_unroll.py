# SPDX-License-Identifier: MIT
"""Unrolls: cutting them into columns and putting them side by side."""

from __future__ import annotations

import itertools
from dataclasses import fields

import pytest
import torch
from torch import Tensor

from mooactor.rl import Episode, Unroll, join_unrolls


def allocate(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype)


def random_unroll(batch: int, version: int = 3) -> Unroll:
    core = torch.randn(2, batch, 7)
    unroll = Unroll.empty(5, batch, (2, 3), torch.uint8, core, allocate)
    for name in tensor_names(unroll):
        tensor = getattr(unroll, name)
        tensor.copy_(torch.randint(0, 2, tensor.shape))
    unroll.version = version
    unroll.episodes = [Episode(1.0, batch)]
    unroll.busy_s = 1.0
    return unroll


def tensor_names(unroll: Unroll) -> list[str]:
    values = {field.name: getattr(unroll, field.name) for field in fields(unroll)}
    return [name for name, value in values.items() if isinstance(value, Tensor)]


def assert_equal(left: Unroll, right: Unroll) -> None:
    for name in tensor_names(left):
        assert torch.equal(getattr(left, name), getattr(right, name)), name


def test_an_empty_unroll_has_the_documented_shapes() -> None:
    unroll = random_unroll(4)
    assert (unroll.steps, unroll.batch) == (5, 4)
    assert unroll.observations.shape == (6, 4, 2, 3)
    assert unroll.first.shape == (6, 4)
    assert unroll.core.shape == (2, 4, 7)
    rows = ("actions", "log_probs", "rewards", "terminal", "valid")
    assert {getattr(unroll, name).shape for name in rows} == {(5, 4)}


@pytest.mark.parametrize("cuts", [[0, 4], [0, 1, 4], [0, 1, 2, 3, 4]])
def test_joining_what_was_cut_restores_it(cuts: list[int]) -> None:
    unroll = random_unroll(4)
    pieces = [unroll.columns(*ends) for ends in itertools.pairwise(cuts)]
    assert_equal(join_unrolls(pieces), unroll)


def test_columns_are_views_that_do_not_repeat_the_statistics() -> None:
    unroll = random_unroll(4)
    piece = unroll.columns(1, 3)
    assert piece.observations.data_ptr() == unroll.observations[:, 1].data_ptr()
    assert (piece.episodes, piece.busy_s, piece.version) == ([], 0.0, 3)


def test_a_joined_unroll_is_as_old_as_its_oldest_part() -> None:
    joined = join_unrolls([random_unroll(1, version=9), random_unroll(2, version=4)])
    assert joined.version == 4
    assert joined.batch == 3
    assert joined.episodes == [Episode(1.0, 1), Episode(1.0, 2)]
    assert joined.busy_s == 2.0
