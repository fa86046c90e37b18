# SPDX-License-Identifier: MIT
"""moo.empty and moo.move, with a plane."""

from __future__ import annotations

import gc
import io
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mooactor.tensors import DataPlane, codec, current, empty, move, set_current

torch = pytest.importorskip("torch")


class Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        return codec.reduce(obj)


def send(obj: Any, sender: DataPlane, receiver: DataPlane) -> Any:
    """The effect of a message on an argument."""
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    Pickler(stream, 5, buffer_callback=buffers.append).dump(obj)
    descriptors = [sender.export(b, receiver.process_id) for b in buffers]
    del buffers, obj
    return pickle.loads(
        stream.getvalue(), buffers=[receiver.import_(d) for d in descriptors]
    )


@pytest.fixture
def here(plane: DataPlane) -> Iterator[DataPlane]:
    before = current()
    set_current(plane)
    yield plane
    set_current(before)


@pytest.mark.parametrize(
    ("dtype", "like", "kind"),
    [
        ("float32", None, np.ndarray),
        (np.int8, None, np.ndarray),
        ("float32", "torch", torch.Tensor),
        (torch.bfloat16, None, torch.Tensor),
        ([("a", "i4"), ("b", "f8")], None, np.ndarray),
    ],
    ids=str,
)
def test_the_dtype_decides_the_kind(here, dtype, like, kind):
    for shape in ((300, 1000), (3, 4), (0, 7), ()):
        made = empty(shape, dtype, like=like)
        # Small ones lie in ordinary memory.
        assert (here.statistics()["used"] > 0) == (made.nbytes > 1000)
        assert type(made) is kind
        assert tuple(made.shape) == shape
        expected = np.dtype(dtype) if kind is np.ndarray else None
        if expected is not None:
            assert made.dtype == expected


def test_what_is_made_shared_is_sent_without_a_copy(here, new_plane):
    other = new_plane()
    for made in (empty((300, 1000)), empty((300, 1000), torch.float64)):
        made[:] = 2
        received = send(made, here, other)
        assert (received == 2).all()
        made[0, 0] = 3
        assert received[0, 0] == 2
    assert here.statistics()["bytes_copied"] == 0


def test_dropped_memory_is_used_again(here):
    empty(1 << 20)
    gc.collect()
    assert here.statistics()["used"] == 0
    for _ in range(200):
        empty(1 << 20)[:] = 1
    assert here.statistics()["reserved"] == 64 << 20


def test_a_moved_array_is_shared_with_nobody_else(here, new_plane):
    other = new_plane()
    array = empty((300, 1000))
    array[:] = 1
    moved = move(array)
    assert array.size == 0  # its use from here on shows
    alias = moved[...]
    received = send(moved, here, other)
    received[0, 0] = 5
    assert alias[0, 0] == 5  # one memory: nothing was copied
    assert here.statistics()["bytes_copied"] == 0
    with pytest.raises(ValueError, match="moved to another process by"):
        send(moved, here, other)


def test_a_moved_tensor_becomes_empty(here, new_plane):
    other = new_plane()
    tensor = empty((300, 1000), torch.bfloat16)
    tensor.fill_(1)
    received = send(move(tensor), here, other)
    assert tensor.numel() == 0
    assert received.shape == (300, 1000)
    assert (received == 1).all()
    assert here.statistics()["bytes_copied"] == 0


@pytest.mark.parametrize("make", [np.ones, torch.ones])
def test_private_memory_is_moved_by_one_copy(here, new_plane, make):
    mine = make((300, 1000))
    moved = move(mine)
    if make is np.ones:
        assert not mine.flags.writeable
    else:
        assert len(mine) == 0
    other = new_plane()
    received = send(moved, here, other)
    assert (received == 1).all()
    assert here.statistics()["bytes_copied"] == 0  # the copy was ours, in move
    with pytest.raises(ValueError, match="moved to another process by"):
        send(moved, here, other)


def test_what_was_received_can_be_moved_on(here, new_plane):
    second, third = new_plane(), new_plane()
    array = empty((300, 1000))
    array[:] = 1
    received = send(move(array), here, second)
    received[0] = 2
    set_current(second)
    onward = send(move(received), second, third)
    assert onward[0, 0] == 2
    assert onward[1, 0] == 1


def test_views_of_what_was_moved_stay_valid_memory(here):
    array = empty((300, 1000))
    array[:] = 1
    view = array[100:]
    move(array)  # and nobody sends it
    del array
    gc.collect()
    assert here.statistics()["blocks"] == 1
    assert (view == 1).all()
    del view
    assert here.statistics()["blocks"] == 0


def test_what_cannot_be_moved_is_sent_by_value(here):
    parameter = torch.nn.Parameter(torch.ones(300, 300))
    assert move(parameter) is parameter
    objects = np.array([None, 1] * 50_000, dtype=object)
    assert move(objects) is objects
    parts = [torch.ones(20_000), torch.ones(30_000)]
    for layout in (torch.strided, torch.jagged):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are a prototype of torch's
            nested = torch.nested.nested_tensor(parts, layout=layout)
        assert move(nested) is nested
