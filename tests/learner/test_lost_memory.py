# SPDX-License-Identifier: MIT
"""Tensors that get other memory while an operation works on what they had."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import mooactor as moo

torch = pytest.importorskip("torch")
from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402


def _halved(tensor: Any) -> None:
    model = torch.nn.Module()
    model.weight = torch.nn.Parameter(tensor)
    model.half()
    tensor.data = model.weight.data.float()


def _replaced(tensor: Any) -> None:
    tensor.data = torch.zeros(3)


def _moved(tensor: Any) -> None:
    moo.move(tensor)


LAYOUTS: dict[str, Any] = {
    "contiguous": lambda: torch.full((200, 300), 2.0),
    "transposed": lambda: torch.empty_strided((200, 300), (1, 200)).fill_(2.0),
}


@pytest.mark.parametrize("apart", [False, True], ids=["in place", "out="])
def test_a_tensor_that_gets_other_memory_keeps_that_of_its_operation(
    session: Any, apart: bool
) -> None:
    for lose, layout in itertools.product((_halved, _replaced, _moved), LAYOUTS):
        lose_one(layout, lose, apart)


def lose_one(layout: str, lose: Any, apart: bool) -> None:
    with moo.LearnerGroup("losing-memory", min_size=1) as group:
        tensor = LAYOUTS[layout]()
        memory = StorageWeakRef(tensor.untyped_storage())
        source = LAYOUTS[layout]() if apart else tensor
        work = group.allreduce(source, op="sum", out=tensor if apart else None)
        lose(tensor)
        assert not memory.expired()
        work.wait()
        group.barrier()  # which lets go of it
        del work, tensor, source
        assert memory.expired()
