# SPDX-License-Identifier: MIT
"""Arrays and tensors through actor calls, over the shared-memory data plane."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from tests.actors.counter import Counter
from tests.conftest import eventually
from tests.marks import slow

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

    def address_is_shared(self) -> bool:
        return bool(moo.stats()["memory"]["imports"])


BIG = 1 << 18


@pytest.mark.parametrize("size", [0, 1, 100, BIG])
def test_arrays_and_tensors_come_back_equal(spawn: Any, size: int) -> None:
    counter = spawn(Counter)
    array = np.arange(size, dtype=np.float32)
    np.testing.assert_array_equal(counter.echo(array), array)
    tensor = torch.arange(size, dtype=torch.bfloat16)
    assert torch.equal(counter.echo(tensor), tensor)


def test_nested_containers_keep_their_types(spawn: Any) -> None:
    array, tensor = np.ones(BIG), torch.full((3, BIG), 2.0)
    value = {"pair": Pair(array, [tensor]), "batch": Batch(array, (tensor, None))}
    back = spawn(Counter).echo(value)
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


def test_a_result_goes_from_actor_to_actor_without_another_copy(spawn: Any) -> None:
    source, keeps = spawn(Keeps), spawn(Keeps)
    before = moo.stats()["memory"]["bytes_copied"]
    assert keeps.keep(source.make.remote(BIG, 2.0)) == 2.0
    assert keeps.total() == 2.0 * BIG
    assert moo.stats()["memory"]["bytes_copied"] == before


def test_what_is_made_in_shared_memory_is_sent_without_a_copy(spawn: Any) -> None:
    keeps = spawn(Keeps)
    array = moo.empty((4, BIG), "float32")
    array[...] = 1
    before = moo.stats()["memory"]["bytes_copied"]
    for _ in range(3):
        keeps.keep(array)
    assert keeps.total() == 4 * BIG
    assert moo.stats()["memory"]["bytes_copied"] == before


def test_a_group_gets_one_shared_copy(group: Any) -> None:
    members = group(Keeps, 3)
    array = np.ones(BIG, np.float32)
    before = moo.stats()["memory"]["bytes_copied"]
    members.call(Keeps.keep, array).get()
    copied = moo.stats()["memory"]["bytes_copied"] - before
    assert copied == array.nbytes
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
    assert eventually(lambda: moo.stats()["memory"]["used_bytes"] == 0)


def test_memory_held_by_a_killed_actor_is_free_again(spawn: Any) -> None:
    keeps = spawn(Keeps)
    keeps.keep(np.ones(BIG, np.float32))
    assert moo.stats()["memory"]["used_bytes"] > 0
    moo.kill(keeps)
    assert eventually(lambda: moo.stats()["memory"]["used_bytes"] == 0)


def test_cancelled_and_unread_results_give_their_memory_back(spawn: Any) -> None:
    keeps = spawn(Keeps)
    refs = [keeps.make.remote(BIG, 1.0) for _ in range(5)]
    for ref in refs[::2]:
        ref.cancel()
    moo.wait(refs, num_returns=5)
    del refs, ref
    keeps.forget()
    source = moo.stats  # the actor's own arena is asked through a call

    class Asks:
        def used(self) -> int:
            return int(source()["memory"]["used_bytes"])

    assert spawn(Asks).used() == 0
    assert moo.stats()["memory"]["imported_bytes"] == 0


@pytest.mark.slow
def test_what_fits_the_limit_can_be_sent_whatever_was_sent_before(
    tmp_path: Any,
) -> None:
    from tests.process import programs

    script = """
        import numpy as np
        import mooactor as moo

        class Measures:
            def size(self, x): return x.nbytes

        with moo.init(memory=96 << 20):
            measures = moo.spawn(Measures)
            for megabytes in (10, 70, 40, 90, 10):
                print(measures.size(np.ones(megabytes << 20, np.uint8)) >> 20)
    """
    done = programs.run(programs.write(tmp_path / "growing.py", script))
    assert done.stdout.split() == ["10", "70", "40", "90", "10"], done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["def", slow("async def"), slow("def in a thread")])
def test_an_argument_that_was_not_kept_is_let_go_of_before_the_reply(
    tmp_path: Any, kind: str
) -> None:
    from tests.process import programs

    options = "max_concurrency=2" if "thread" in kind else ""
    script = f"""
        import time, weakref
        import numpy as np
        import mooactor as moo

        @moo.actor({options})
        class Measures:
            {kind.removesuffix(" in a thread")} size(self, x):
                weakref.finalize(x, time.sleep, 0.3)  # its memory is freed after that
                return x.nbytes

        with moo.init(memory=96 << 20):
            measures = moo.spawn(Measures)
            for megabytes in (10, 70, 40, 90, 10):
                x = np.ones(megabytes << 20, np.uint8)
                print(moo.get(measures.size.remote(x)) >> 20)
    """
    done = programs.run(programs.write(tmp_path / "growing.py", script))
    assert done.stdout.split() == ["10", "70", "40", "90", "10"], done.stderr


def test_out_of_memory_names_sizes_and_holders_and_all_else_goes_on(
    tmp_path: Any,
) -> None:
    from tests.process import programs

    script = """
        import numpy as np
        import mooactor as moo

        class Keeps:
            def __init__(self): self.kept = []
            def keep(self, x): self.kept.append(x)
            def forget(self): self.kept.clear()

        with moo.init(memory=64 << 20):
            keeps = moo.spawn(Keeps)
            try:
                for _ in range(10):
                    keeps.keep(np.ones(16 << 20, np.uint8))
            except moo.OutOfMemory as error:
                print(error)
            keeps.forget()
            keeps.keep(np.ones(16 << 20, np.uint8))
            print("went on")
    """
    done = programs.run(programs.write(tmp_path / "full.py", script))
    first, second = done.stdout.splitlines()
    assert "16.8 MB" in first
    assert "holds" in first
    assert second == "went on", done.stderr
