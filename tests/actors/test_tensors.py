# SPDX-License-Identifier: MIT
"""Arrays and tensors through actor calls, over the shared-memory data plane."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from tests.actors.counter import Counter
from tests.conftest import eventually

torch = pytest.importorskip("torch")

Pair = namedtuple("Pair", "a b")


@dataclass
class Batch:
    observations: np.ndarray[Any, Any]
    rewards: Any


@moo.actor
class Keeps:
    def __init__(self) -> None:
        self.kept: Any = None

    def keep(self, value: Any) -> float:
        self.kept = value
        return float(value.reshape(-1)[0])

    def total(self) -> float:
        return float(self.kept.sum())

    def scribble(self) -> float:
        self.kept[...] = -1
        return float(self.kept.sum())

    def forget(self) -> None:
        self.kept = None

    def make(self, n: int, fill: float) -> Any:
        return np.full(n, fill, np.float32)

    def stream(self, n: int, size: int) -> Any:
        for i in range(n):
            yield np.full(size, i, np.float32)

    def used(self) -> int:
        return int(moo.stats()["memory"]["used_bytes"])


BIG = 1 << 18


def test_arrays_and_tensors_come_back_equal_in_their_containers(spawn: Any) -> None:
    counter = spawn(Counter)
    for size in (0, 1, 100, BIG):
        array = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(counter.echo(array), array)
        tensor = torch.arange(size, dtype=torch.bfloat16)
        assert torch.equal(counter.echo(tensor), tensor)
    array, tensor = np.ones(BIG), torch.full((3, BIG), 2.0)
    value = {"pair": Pair(array, [tensor]), "batch": Batch(array, (tensor, None))}
    back = counter.echo(value)
    assert isinstance(back["pair"], Pair)
    assert isinstance(back["batch"], Batch)
    np.testing.assert_array_equal(back["pair"].a, array)
    assert torch.equal(back["batch"].rewards[0], tensor)


def test_received_data_is_private_on_write(spawn: Any) -> None:
    keeps = spawn(Keeps)
    array = np.ones(BIG, np.float32)
    ref = moo.put(array)
    keeps.keep(ref)
    assert keeps.scribble() == -BIG
    assert ref.get().sum() == BIG
    mine = ref.get()
    mine[...] = 5
    keeps.keep(ref)
    assert keeps.total() == BIG


def test_a_ref_has_one_value_in_each_process(spawn: Any) -> None:
    keeps = spawn(Keeps)
    for ref in (keeps.make.remote(BIG, 1.0), moo.put(np.ones(BIG, np.float32))):
        mine = ref.get()
        mine[0] = 5
        assert ref.get() is mine
    keeps.keep(ref)  # of `put`: what was put, whatever became of mine
    assert keeps.total() == BIG


def test_received_data_stays_readable_after_its_source_is_gone(spawn: Any) -> None:
    source, keeps = spawn(Keeps), spawn(Keeps)
    ref = source.make.remote(BIG, 3.0)
    keeps.keep(ref)
    array = ref.get()
    moo.kill(source)
    assert array.sum() == 3.0 * BIG
    assert keeps.total() == 3.0 * BIG


def test_what_the_sender_writes_afterwards_does_not_show(spawn: Any) -> None:
    keeps = spawn(Keeps)
    for array in (np.ones(BIG, np.float32), moo.empty(BIG, "float32")):
        array[...] = 1
        keeps.keep(array)
        array[...] = 9
        assert keeps.total() == BIG


def copied(run: Callable[[], object]) -> int:
    """Bytes that this process copied for it."""
    before = moo.stats()["memory"]["bytes_copied"]
    run()
    return int(moo.stats()["memory"]["bytes_copied"] - before)


def test_data_is_copied_once_or_not_at_all(spawn: Any, group: Any) -> None:
    source, keeps, members = spawn(Keeps), spawn(Keeps), group(Keeps, 3)
    # A result goes from actor to actor.
    assert copied(lambda: keeps.keep(source.make.remote(BIG, 2.0))) == 0
    assert keeps.total() == 2.0 * BIG
    # An array that is made in shared memory is there already.
    array = moo.empty((4, BIG), "float32")
    array[...] = 1
    assert copied(lambda: [keeps.keep(array) for _ in range(3)]) == 0
    assert keeps.total() == 4 * BIG
    # A group gets one shared copy.
    plain = np.ones(BIG, np.float32)
    assert copied(lambda: members.call(Keeps.keep, plain).get()) == plain.nbytes
    assert members.call(Keeps.total).get() == [BIG] * 3


def test_streams_carry_arrays(spawn: Any) -> None:
    sums = [float(a.sum()) for a in spawn(Keeps).stream(40, BIG)]
    assert sums == [float(i * BIG) for i in range(40)]


def test_a_moved_array_arrives_and_is_empty_here(spawn: Any) -> None:
    array = moo.empty(BIG, "float32")
    array[...] = 2
    keeps = spawn(Keeps)
    keeps.keep(moo.move(array))
    assert array.size == 0
    assert keeps.total() == 2 * BIG


def test_memory_is_free_again_when_nobody_holds_it(spawn: Any) -> None:
    keeps = spawn(Keeps)
    for _ in range(20):
        keeps.keep(np.ones(BIG, np.float32))
    keeps.forget()
    refs = [keeps.make.remote(BIG, 1.0) for _ in range(5)]
    for ref in refs[::2]:
        ref.cancel()
    moo.wait(refs, num_returns=5)
    del refs, ref  # some of them never read
    assert eventually(lambda: keeps.used() == 0)
    assert moo.stats()["memory"]["imported_bytes"] == 0
    assert eventually(lambda: moo.stats()["memory"]["used_bytes"] == 0)
    keeps.keep(np.ones(BIG, np.float32))
    moo.kill(keeps)
    assert eventually(lambda: moo.stats()["memory"]["used_bytes"] == 0)
