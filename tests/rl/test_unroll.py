# SPDX-License-Identifier: MIT
"""Unrolls: cutting them into columns and putting them side by side."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mooactor.rl import (
    Episode,
    Unroll,
    UnrollBuffer,
    load_checkpoint,
    save_checkpoint,
)

CPU = torch.device("cpu")


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


def joined(unrolls: Sequence[Unroll]) -> Unroll:
    """Side by side in new tensors: what a buffer is to give, the obvious way."""
    first = unrolls[0]
    together = {
        name: torch.cat([getattr(unroll, name) for unroll in unrolls], dim=1)
        for name in tensor_names(first)
    }
    return replace(
        first,
        **together,
        version=min(unroll.version for unroll in unrolls),
        episodes=[game for unroll in unrolls for game in unroll.episodes],
        busy_s=sum(unroll.busy_s for unroll in unrolls),
    )


def tensor_names(unroll: Unroll) -> list[str]:
    values = {field.name: getattr(unroll, field.name) for field in fields(unroll)}
    return [name for name, value in values.items() if isinstance(value, Tensor)]


def assert_equal(left: Unroll, right: Unroll) -> None:
    for name in tensor_names(left):
        assert torch.equal(getattr(left, name), getattr(right, name)), name


def assert_same(left: Unroll, right: Unroll) -> None:
    """Equal tensors, types, and facts beside them."""
    assert_equal(left, right)
    names = tensor_names(left)
    kinds = [[getattr(each, name).dtype for name in names] for each in (left, right)]
    assert kinds[0] == kinds[1]
    beside = ("version", "episodes", "busy_s", "idle_s")
    for name in beside:
        assert getattr(left, name) == getattr(right, name), name


def test_an_empty_unroll_has_the_documented_shapes() -> None:
    unroll = random_unroll(4)
    assert (unroll.steps, unroll.batch) == (5, 4)
    assert unroll.observations.shape == (6, 4, 2, 3)
    assert unroll.first.shape == (6, 4)
    assert unroll.core.shape == (2, 4, 7)
    rows = ("actions", "log_probs", "rewards", "terminal", "valid")
    assert {getattr(unroll, name).shape for name in rows} == {(5, 4)}


def test_joining_what_was_cut_restores_it() -> None:
    unroll = random_unroll(4)
    for cuts in ([0, 4], [0, 1, 4], [0, 1, 2, 3, 4]):
        pieces = [unroll.columns(*ends) for ends in itertools.pairwise(cuts)]
        assert_equal(UnrollBuffer().fill(pieces, CPU), unroll)


def test_columns_are_views_that_do_not_repeat_the_statistics() -> None:
    unroll = random_unroll(4)
    piece = unroll.columns(1, 3)
    assert piece.observations.data_ptr() == unroll.observations[:, 1].data_ptr()
    assert (piece.episodes, piece.busy_s, piece.version) == ([], 0.0, 3)


def test_a_joined_unroll_is_as_old_as_its_oldest_part() -> None:
    pieces = [random_unroll(1, version=9), random_unroll(2, version=4)]
    batch = UnrollBuffer().fill(pieces, CPU)
    assert batch.version == 4
    assert batch.batch == 3
    assert batch.episodes == [Episode(1.0, 1), Episode(1.0, 2)]
    assert batch.busy_s == 2.0


def test_a_buffer_joins_whatever_the_sizes_and_kinds() -> None:
    buffer = UnrollBuffer()
    for batches in ([4, 2], [1, 1, 1], [3, 8], [5], [2, 4]):
        pieces = [random_unroll(batch, version=batch) for batch in batches]
        assert_same(buffer.fill(pieces, CPU), joined(pieces))
    columns = [pieces[1].columns(2, 4), pieces[1].columns(0, 1)]
    assert_same(buffer.fill(columns, CPU), joined(columns))
    for piece in pieces:
        piece.observations = piece.observations.float()
    assert_same(buffer.fill(pieces, CPU), joined(pieces))


def test_a_buffer_keeps_its_memory() -> None:
    buffer = UnrollBuffer()
    batches = [
        buffer.fill([random_unroll(width), random_unroll(3)], CPU)
        for width in (5, 5, 2, 5)
    ]
    for name in tensor_names(batches[0]):
        addresses = {getattr(batch, name).data_ptr() for batch in batches}
        assert len(addresses) == 1, name
        assert getattr(batches[2], name).is_contiguous()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_batches_on_a_gpu_are_not_overwritten_by_later_ones() -> None:
    gpu, buffer = torch.device("cuda", 0), UnrollBuffer()
    busy = torch.randn(2048, 2048, device=gpu)
    expected, batches = [], []
    for batches_of in ([40, 20], [60], [10, 10, 10], [80, 40], [60]):
        pieces = [random_unroll(batch) for batch in batches_of]
        expected.append(joined(pieces))
        for _ in range(20):
            busy = busy @ busy / 2048
        batch = buffer.fill(pieces, gpu)
        batches.append(replace(batch, observations=batch.observations + 0))
        for piece in pieces:  # as an actor's shared memory that is used again
            piece.observations.zero_()
    for moved, wanted in zip(batches, expected, strict=True):
        assert moved.observations.device == gpu
        assert_same(moved.to(CPU), wanted)


def test_a_checkpoint_holds_an_unroll(tmp_path: Path) -> None:
    unroll = random_unroll(3)
    save_checkpoint(tmp_path, {"unroll": unroll.state()})
    again = Unroll.from_state(load_checkpoint(tmp_path)["unroll"])
    assert_same(again, unroll)
    assert isinstance(again.episodes[0], Episode)
