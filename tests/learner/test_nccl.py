# SPDX-License-Identifier: MIT
"""Learner groups whose bytes NCCL moves: the group's own protocol decides how each
operation ends.

A member of these tests tells `mooactor.learner.nccl` to use gloo, whose process group
has NCCL's interface and works on CPU tensors: everything but the GPU is what runs in
production. Gloo cannot abort: an operation that lost a member ends in gloo by itself,
in its thread, which nobody waits for. The last tests need two GPUs.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.learner import nccl
from tests.learner.member import Member

torch = pytest.importorskip("torch")

_numbers = itertools.count()


class Carried(Member):
    """A member of a group with a backend."""

    def enter(
        self,
        name: str,
        size: int,
        backend: Any,
        *,
        transport: str = "gloo",
        min_size: int = 1,
        on_loss: Any = "raise",
        timeout: float = 30.0,
    ) -> int:
        nccl.TRANSPORT = transport
        self.group = group = moo.LearnerGroup(
            name, min_size, on_loss=on_loss, backend=backend, timeout=timeout
        )
        while group.size < size:
            group.barrier()
        return group.rank

    def fail(self, where: str, how: str) -> None:
        """Do that in the next operation, in the thread that calls torch."""
        faults = [FAULTS[how]]
        method = getattr(nccl.Communicator, where)

        def faulty(*args: Any) -> Any:
            if faults:
                faults.pop()()
            return method(*args)

        setattr(nccl.Communicator, where, faulty)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuse() -> None:
    raise RuntimeError("no route to the switch")


def sleep() -> None:
    time.sleep(3)  # longer than the group's timeout


FAULTS: dict[str, Callable[[], None]] = {"die": die, "refuse": refuse, "sleep": sleep}
Carry = Callable[..., Any]


@pytest.fixture
def carried(session: Any) -> Iterator[Carry]:
    """``carried(n, "nccl")``: n members in one group, in rank order."""
    made: list[Any] = []

    def make(size: int, *backends: str, **options: Any) -> Any:
        group = moo.on(Carried, env=options.pop("env", {})).group(size)
        made.extend(group)
        name = f"carried-{next(_numbers)}"
        each = itertools.islice(itertools.cycle(backends), size)
        refs = [
            member.enter.remote(name, size, backend, **options)
            for member, backend in zip(group, each)
        ]
        ranks = moo.get(refs, timeout=30)
        return moo.Group([group[ranks.index(rank)] for rank in range(size)])

    yield make
    for handle in made:
        moo.kill(handle)


def everywhere(group: Any, act: Any, *args: Any) -> list[Any]:
    """The results of ``act(group, *args)``, or the errors, of each member."""
    refs = [member.run.remote(act, *args) for member in group]
    return [ref.exception(timeout=30) or ref.get() for ref in refs]


# -- results -----------------------------------------------------------------


def _all_kinds(group: Any) -> str | None:
    """Every operation beside the same in numpy."""
    rank, size = group.rank, group.size
    inputs = [np.random.default_rng(r).standard_normal((size, 5)) for r in range(size)]
    total = np.sum(inputs, axis=0)
    mine = torch.tensor(inputs[rank])
    expected = {
        "sum": total,
        "mean": total / size,
        "min": np.min(inputs, axis=0),
        "max": np.max(inputs, axis=0),
        "product": np.prod(inputs, axis=0),
    }
    for op, right in expected.items():
        for dtype in (torch.float64, torch.bfloat16):
            close = {"rtol": 0.1, "atol": 0.1} if dtype.itemsize == 2 else {}
            given = {"b": mine.to(dtype), "a": mine[1].to(torch.float32)}
            out = {name: torch.zeros_like(t) for name, t in given.items()}
            assert group.allreduce(given, op, out=out).result() is out
            wanted = torch.tensor(right)
            torch.testing.assert_close(out["b"], wanted.to(dtype), **close)
            torch.testing.assert_close(out["a"], wanted[1].float())
            torch.testing.assert_close(given["b"], mine.to(dtype))  # as it was
    columns = mine.clone().T[1:3]  # in place, and not contiguous
    group.allreduce([columns], "sum").wait()
    torch.testing.assert_close(columns, torch.tensor(total.T[1:3]))
    group.allreduce((t for t in [mine[0].clone()]), "max").wait()
    counts = torch.tensor([rank, 7])
    assert group.allreduce(counts, "sum").result().tolist() == [
        sum(range(size)),
        7 * size,
    ]
    odd = [torch.tensor([rank == 1]), torch.full((3,), rank * 1j), torch.tensor(rank)]
    group.broadcast(odd, root=1).wait()
    assert [t.tolist() for t in odd] == [[True], [1j] * 3, 1]
    torch.testing.assert_close(
        group.all_gather(mine[0]).result(), torch.tensor(np.stack(inputs)[:, 0])
    )
    torch.testing.assert_close(
        group.reduce_scatter(mine, "mean").result(),
        torch.tensor(expected["mean"][rank]),
    )
    assert group.allreduce(torch.zeros(0)).result().numel() == 0
    return group.transport


def test_all_operations_give_what_the_cpu_gives(carried: Carry) -> None:
    assert everywhere(carried(3, "nccl"), _all_kinds) == ["gloo"] * 3


def _queue_many(group: Any) -> tuple[list[float], float, list[int], bool]:
    x = torch.ones(1000)
    works = [group.allreduce(x, "sum").start() for _ in range(4)]
    array = np.ones(10)
    works.append(group.allreduce(array, "sum"))  # by the CPU, in its turn
    works.append(group.allreduce(x[10:20], "sum"))  # a view of what is queued
    again = asyncio.run(_await(group, x))
    group.barrier()
    done = all(work.done() for work in works)
    for work in works:
        work.wait()
    ranks = [member.rank for member in works[0].participants]
    return [float(x[0]), float(again[15])], float(array[0]), ranks, done


async def _await(group: Any, x: Any) -> Any:
    return await group.allreduce(x, "mean")


def test_operations_run_in_the_order_queued_whoever_makes_them(carried: Carry) -> None:
    expected = ([16.0, 32.0], 2.0, [0, 1], True)
    assert everywhere(carried(2, "nccl"), _queue_many) == [expected] * 2


def _train(group: Any) -> list[float]:
    torch.manual_seed(group.rank)
    parts = (torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 1))
    model = group.wrap(torch.nn.Sequential(*parts), bucket_bytes=200)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    random = torch.Generator().manual_seed(group.rank)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(16, 8, generator=random)).pow(2).mean().backward()
        optimizer.step()
    return [float(p.detach().double().sum()) for p in model.parameters()]


def test_a_wrapped_module_trains_as_it_does_by_the_cpu(carried: Carry) -> None:
    ours, others = everywhere(carried(2, "nccl"), _train)
    assert ours == others
    assert ours == pytest.approx(everywhere(carried(2, "cpu"), _train)[0], abs=1e-5)


def _accumulate(group: Any) -> tuple[float, int]:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    accumulator = moo.Accumulator(group, model, optimizer, batch=8)
    for step in accumulator:
        if step.version == 3:
            break
        step.add(model(torch.ones(4, 4)).mean(), count=4)
    return float(model.weight.detach().sum()), accumulator.stats()["updates"]


def test_the_accumulator_needs_no_change(carried: Carry) -> None:
    ours, others = everywhere(carried(2, "auto"), _accumulate)
    assert ours == others and ours[1] == 3


# -- deaths ------------------------------------------------------------------


def _sum(group: Any, more: int = 1) -> list[tuple[float, list[int]]]:
    seen = []
    for _ in range(more):
        work = group.allreduce(torch.full((50_000,), 1.0 + group.rank), "sum")
        total = work.result()
        assert (total == total[0]).all()
        seen.append((float(total[0]), [one.process_id for one in work.participants]))
    return seen


@pytest.mark.parametrize("where", ["_open", "_begin", "deliver"])
def test_all_others_raise_peer_lost_wherever_a_member_dies(
    carried: Carry, where: str
) -> None:
    group = carried(3, "nccl")
    if where != "_open":
        everywhere(group, _sum)
    group[1].fail(where, "die")
    one, dead, other = everywhere(group, _sum)
    assert isinstance(dead, moo.ActorDied)
    if where == "deliver":  # it had told the others that it has everything
        assert one == other and one[0][0] == 6.0
        one, other = everywhere([group[0], group[2]], _sum)
    assert isinstance(one, moo.PeerLost) and "allreduce(sum)" in str(one)
    assert (one.rank, one.epoch) == (1, one.epoch) == (other.rank, other.epoch)
    left = everywhere([group[0], group[2]], _sum)  # a new communicator
    assert left[0] == left[1] and left[0][0][0] == 3.0
    assert group[0].ask("transport") == "gloo"


@pytest.mark.parametrize("where", ["_open", "_begin", "deliver"])
def test_survivors_finish_from_their_own_inputs(carried: Carry, where: str) -> None:
    group = carried(3, "auto", on_loss="finish")
    ids = [member.process_id for member in group[0].ask("members")]
    group[2].fail(where, "die")
    one, other, dead = everywhere(group, _sum, 2)
    assert isinstance(dead, moo.ActorDied)
    assert one == other
    assert one[0] == ((6.0, ids) if where == "deliver" else (3.0, ids[:2]))
    assert one[1] == (3.0, ids[:2])


def _lose(group: Any, kind: str) -> str:
    x = torch.ones(group.size, 4)
    try:
        work = group.broadcast(x) if kind == "broadcast" else group.all_gather(x)
        work.wait()
    except moo.PeerLost as lost:
        group.barrier()
        return f"rank {lost.rank}"
    return "nothing"


@pytest.mark.parametrize("kind", ["broadcast", "all_gather"])
def test_what_names_a_rank_raises_also_in_a_group_that_finishes(
    carried: Carry, kind: str
) -> None:
    group = carried(3, "nccl", on_loss="finish")
    group[1].fail("_begin", "die")
    one, _, other = everywhere(group, _lose, kind)
    assert (one, other) == ("rank 1", "rank 1")


def test_members_leave_and_join_between_operations(carried: Carry) -> None:
    group = carried(2, "nccl")
    name = group[0].ask("name")
    everywhere(group, _sum)
    newcomer = moo.on(Carried).spawn()
    joined = newcomer.enter.remote(name, 3, "nccl")
    while group.run.call(_step).get(30)[0] == 2:
        pass
    assert joined.get(30) == 2
    sums = everywhere([*group, newcomer], _sum)
    assert [total for ((total, _),) in sums] == [6.0] * 3
    group[0].leave()
    assert everywhere([group[1], newcomer], _step) == [2, 2]
    sums = everywhere([group[1], newcomer], _sum)
    assert [total for ((total, _),) in sums] == [3.0] * 2
    moo.kill(newcomer)


def _step(group: Any) -> int:
    group.barrier()
    return int(group.size)


def _sum_until_two_are_left(group: Any, more: int) -> list[Any]:
    seen: list[Any] = []
    while more:
        try:
            seen += _sum(group)
        except moo.PeerLost as lost:
            seen.append((lost.rank, lost.epoch))
        more -= group.size == 2
    return seen


@pytest.mark.parametrize("on_loss", ["raise", "finish"])
def test_kills_at_any_time_end_alike_for_all(
    carried: Carry, medium: dict[str, str], on_loss: str
) -> None:
    group = carried(4, "nccl", on_loss=on_loss, env=medium)
    pids = group.call(Member.pid).get()
    going = [member.run.remote(_sum_until_two_are_left, 3) for member in group]
    for rank in (1, 3):
        os.kill(pids[rank], signal.SIGKILL)
    for rank in (1, 3):
        assert isinstance(going[rank].exception(timeout=30), moo.ActorDied)
    one, other = going[0].get(timeout=30), going[2].get(timeout=30)
    assert one == other
    assert one[-1][0] == 3.0 and len(one[-1][1]) == 2


# -- errors ------------------------------------------------------------------


def test_calls_that_differ_are_refused_for_all(carried: Carry) -> None:
    group = carried(2, "nccl")
    for act, words in (
        (_other_shapes, "float32[10]; rank 1 called allreduce(sum)"),
        (_other_keys, "with other keys"),
        (_other_kinds, "rank 1 called broadcast(root=0)"),
        (_other_devices, "some pass tensors on a GPU"),
    ):
        errors = everywhere(group, act)
        assert [type(error) for error in errors] == [ValueError] * 2
        assert words in str(errors[0])
        assert words in str(errors[1])
        assert everywhere(group, _sum)[0][0][0] == 3.0  # they go on


def _other_shapes(group: Any) -> None:
    group.allreduce(torch.ones(10 + group.rank), "sum").wait()


def _other_keys(group: Any) -> None:
    group.allreduce({group.rank: torch.ones(3)}).wait()


def _other_kinds(group: Any) -> None:
    x = torch.ones(3)
    (group.broadcast(x) if group.rank else group.allreduce(x)).wait()


def _other_devices(group: Any) -> None:
    x: Any = np.ones(3) if group.rank else torch.ones(3, dtype=torch.float64)
    group.allreduce(x, "sum").wait()


def test_auto_takes_the_cpu_unless_all_members_can_do_better(carried: Carry) -> None:
    group = carried(2, "auto")
    assert everywhere(group, _other_devices) == [None, None]
    assert group.ask.call("transport").get() == ["shm", "shm"]
    assert everywhere(group, _sum)[0][0][0] == 3.0
    assert group.ask.call("transport").get() == ["gloo", "gloo"]

    name, halves = f"halves-{next(_numbers)}", moo.on(Carried).group(2)
    refs = [
        member.enter.remote(name, 2, "auto", transport=transport)
        for member, transport in zip(halves, ("gloo", "nccl"))
    ]
    moo.get(refs, timeout=30)
    assert sorted(everywhere(halves, _sum)[0][0][1]) != []
    if not torch.cuda.is_available():
        assert halves.ask.call("transport").get() == ["shm", "shm"]
    for member in halves:
        moo.kill(member)


def test_what_torch_refuses_is_told_to_all(carried: Carry) -> None:
    group = carried(2, "nccl")
    group[1].fail("_open", "refuse")
    errors = everywhere(group, _sum)
    assert [type(error) for error in errors] == [moo.ActorUnavailable] * 2
    assert "GLOO failed on rank 1: no route to the switch" in str(errors[0])
    everywhere(group, _sum)

    group[1].fail("_begin", "refuse")
    errors = everywhere(group, _sum)
    assert [type(error) for error in errors] == [moo.PeerLost] * 2
    assert (errors[0].rank, errors[1].rank) == (1, 1)
    assert everywhere(group, _sum)[0][0][0] == 3.0  # with a new communicator

    finishing = carried(2, "nccl", on_loss="finish")
    finishing[1].fail("_begin", "refuse")
    assert everywhere(finishing, _sum)[0][0][0] == 3.0


def test_an_operation_that_does_not_end_is_too_late_for_all(carried: Carry) -> None:
    group = carried(2, "nccl", timeout=1.0)
    everywhere(group, _sum)
    group[1].fail("_begin", "sleep")
    errors = everywhere(group, _sum)
    assert [type(error) for error in errors] == [moo.CallTimeout] * 2
    assert "NCCL had not ended within 1.0 s" in str(errors[0])


def _odd(group: Any) -> list[str]:
    found = []
    for wrong in (
        lambda: group.allreduce([torch.ones(2), None]),
        lambda: group.allreduce(torch.ones(2), out=torch.ones(3)),
        lambda: group.allreduce(torch.ones(1).expand(3)),
        lambda: group.allreduce([x := torch.ones(4), x[1:]]),
        lambda: group.allreduce(torch.ones(2, dtype=torch.bool)),
        lambda: group.broadcast(torch.ones(3), root=5).wait(),
    ):
        with pytest.raises((TypeError, ValueError)) as caught:
            wrong()
        found.append(str(caught.value))
    return found


def test_wrong_arguments_are_refused_where_they_are_passed(carried: Carry) -> None:
    none, out, repeats, shared, dtype, root = everywhere(carried(2, "nccl"), _odd)[0]
    assert "gradient of an unused parameter" in none
    assert "out= must have the shapes" in out
    assert "share memory, like those of an expanded view" in repeats
    assert "0 and tensor 1 share memory" in shared
    assert "not defined for bool" in dtype
    assert "does not fit the group" in root


def _left(group: Any) -> tuple[list[str], list[str]]:
    group.allreduce(torch.ones(3)).wait()
    late = group.allreduce(torch.ones(3)) if group.rank == 0 else None
    group.leave()
    said = []
    for act in (late and late.wait, lambda: group.allreduce(torch.ones(3))):
        try:
            act and act()
        except RuntimeError as error:
            said.append(str(error))
    return said, [t.name for t in threading.enumerate() if group.name in t.name]


def test_leaving_ends_what_is_queued_and_the_thread(carried: Carry) -> None:
    (said, threads), (_, others) = everywhere(carried(2, "nccl"), _left)
    assert "left" in said[0] and "has left learner group" in said[1]
    assert threads == others == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_nccl_is_refused_in_one_sentence(session: Any) -> None:
    with pytest.raises(moo.MooError, match=r"because torch .* (built without|no GPU)"):
        moo.LearnerGroup("refused", 1, backend="nccl")
    with pytest.raises(ValueError, match="backend='gpu' must be 'cpu', 'nccl' or"):
        moo.LearnerGroup("refused", 1, backend="gpu")  # type: ignore[arg-type]
    with moo.LearnerGroup("alone", 1, backend="auto") as alone:
        assert alone.allreduce(torch.ones(3), "sum").result().tolist() == [1.0] * 3
        assert alone.transport == "shm"


# -- with GPUs ---------------------------------------------------------------

on_gpus = pytest.mark.skipif(
    torch.cuda.device_count() < 2, reason="NCCL needs a GPU for each of two members"
)


def _on_its_gpu(group: Any) -> Any:
    torch.cuda.set_device(group.rank)
    return torch.device("cuda", group.rank)


def _on_gpu(group: Any) -> tuple[list[float], str | None]:
    device = _on_its_gpu(group)
    seen = []
    with torch.cuda.stream(torch.cuda.Stream(device)):
        for op in ("sum", "mean", "max"):
            x = torch.zeros(1 << 20, device=device)
            torch.cuda._sleep(10_000_000)  # the operation has to wait for the stream
            x += group.rank + 1
            work = group.allreduce([x, counts := torch.tensor([1.0])], op)
            work.wait()
            assert (x == x[0]).all()
            seen.append(float(x[0]) + float(counts[0]))
    half = torch.full((3,), 60000.0, dtype=torch.float16, device=device)
    assert group.allreduce(half, "mean").result().tolist() == [60000.0] * 3
    rows = group.all_gather(torch.tensor([group.rank], device=device)).result()
    assert rows.flatten().tolist() == [0, 1]
    odd = torch.tensor([group.rank == 1], device=device)
    assert group.broadcast(odd, root=1).result().item() is True
    return seen, group.transport


@on_gpus
def test_nccl_reduces_tensors_of_gpus(carried: Carry) -> None:
    for backend in ("nccl", "auto"):
        found = everywhere(carried(2, backend, transport="nccl"), _on_gpu)
        assert found == [([5.0, 2.5, 3.0], "nccl")] * 2


def _train_on_gpu(group: Any) -> list[float]:
    with torch.device(_on_its_gpu(group)):
        torch.manual_seed(group.rank)
        model = group.wrap(torch.nn.Sequential(torch.nn.Linear(8, 8)), bucket_bytes=64)
        for _ in range(3):
            model.zero_grad()
            model(torch.randn(4, 8)).pow(2).mean().backward()
        return [float(p.grad.double().sum()) for p in model.parameters()]


@on_gpus
def test_a_wrapped_module_is_averaged_by_nccl(carried: Carry) -> None:
    ours, others = everywhere(carried(2, "nccl", transport="nccl"), _train_on_gpu)
    assert ours == others


def _sum_on_gpu(group: Any) -> float:
    x = torch.ones(1 << 24, device=_on_its_gpu(group))
    return float(group.allreduce(x, "sum").result()[0])


@on_gpus
@pytest.mark.parametrize("where", ["_open", "_begin"])
@pytest.mark.parametrize("on_loss", ["raise", "finish"])
def test_a_death_aborts_nccl(carried: Carry, where: str, on_loss: str) -> None:
    group = carried(2, "nccl", transport="nccl", on_loss=on_loss)
    if where == "_begin":
        assert everywhere(group, _sum_on_gpu) == [2.0, 2.0]
    group[1].fail(where, "die")
    one, dead = everywhere(group, _sum_on_gpu)
    assert isinstance(dead, moo.ActorDied)
    assert one == 1.0 if on_loss == "finish" else isinstance(one, moo.PeerLost)
    assert everywhere([group[0]], _sum_on_gpu) == [1.0]
