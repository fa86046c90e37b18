# SPDX-License-Identifier: MIT
from __future__ import annotations

import importlib.util
import itertools
import pickle
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from tests.learner.member import Member, input_of
from tests.marks import slow

# Nothing, one element, a few, more than one block, both sides of the threshold
# between one step and the pipeline, and several segments with an odd end.
ELEMENTS = [0, 1, 7, 2049, 4096, 16384, 16385, 300_007]

# The members import it, not the test.
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)


@pytest.mark.parametrize("size", [1, slow(2), 3, slow(8)])
def test_every_rank_gets_the_same_bits_and_they_are_right(
    members: Any, size: int
) -> None:
    group = members(size)
    for op, dtype in itertools.product(("sum", "mean"), ("float32", "float64")):
        tolerance = 1e-5 if dtype == "float32" else 1e-13
        results = group.call(Member.reduce, ELEMENTS, dtype, op).get()
        for result in results:
            assert result == results[0]
        for elements, found in zip(ELEMENTS, results[0], strict=True):
            inputs = [input_of(rank, elements, dtype) for rank in range(size)]
            exact = np.sum([x.astype(np.float64) for x in inputs], axis=0)
            if op == "mean":
                exact = exact / size
            np.testing.assert_allclose(
                np.frombuffer(found, dtype), exact, rtol=tolerance, atol=tolerance * 99
            )


REDUCTIONS = {"min": np.min, "max": np.max, "product": np.prod, "sum": np.sum}


def test_other_reductions_agree_with_numpy(members: Any) -> None:
    group = members(3)
    types = ("float32", "float64", "int32", "int64", "uint8")
    for op, dtype in itertools.product(REDUCTIONS, types):
        results = group.call(Member.reduce, [5000, 3], dtype, op).get()
        for elements, found in zip([5000, 3], results[0], strict=True):
            inputs = np.stack([input_of(rank, elements, dtype) for rank in range(3)])
            with np.errstate(over="ignore"):
                reduced = REDUCTIONS[op](inputs, axis=0)  # type: ignore[operator]
            expected = reduced.astype(dtype)
            np.testing.assert_allclose(np.frombuffer(found, dtype), expected, rtol=1e-5)


def _halves(group: Any, dtype_name: str) -> Any:
    import torch

    dtype = getattr(torch, dtype_name)
    values = torch.linspace(-70000, 70000, 9999) * (group.rank + 1) / 7
    values[:6] = torch.tensor([6e-8, -6e-8, 1e-5, float("nan"), float("inf"), 0.0])
    tensor = values.to(dtype)
    inputs = group.all_gather(tensor).result()
    group.allreduce([tensor], op="mean").wait()
    exact = inputs.to(torch.float32).sum(0) / group.size
    expected = exact.to(dtype)
    nan = expected.isnan()  # one of many bit patterns
    assert tensor.isnan().eq(nan).all()
    return torch.equal(tensor[~nan].view(torch.int16), expected[~nan].view(torch.int16))


@needs_torch
def test_half_precision_is_summed_in_float_and_rounded_once(members: Any) -> None:
    group = members(2)
    for dtype in ("float16", "bfloat16"):
        assert group.run.call(_halves, dtype).get() == [True, True]


# Per rank: each element has a zero of either sign, a NaN or a number somewhere.
SIGNS = np.array(
    [
        [0.0, -0.0, 0.0, -0.0, 1.0, np.nan, 2.0, -0.0],
        [-0.0, 0.0, 0.0, -0.0, 0.0, 1.0, np.nan, 3.0],
        [0.0, 0.0, 0.0, -0.0, -0.0, -0.0, 0.0, -2.0],
    ]
)
LEAST = ["-0.0", "-0.0", "0.0", "-0.0", "-0.0", "nan", "nan", "-2.0"]
MOST = ["0.0", "0.0", "0.0", "-0.0", "1.0", "nan", "nan", "3.0"]


def _extrema(group: Any) -> list[list[str]]:
    import torch

    seen = []
    for op in ("min", "max"):
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            for times in (1, 30_011):  # one step; the pipeline, or the ring
                one = torch.from_numpy(SIGNS[group.rank]).to(dtype)
                tensor = one.repeat(times)
                group.allreduce(tensor, op=op).wait()
                rows = tensor.view(times, 8)
                assert rows.signbit().eq(rows[0].signbit())[:, ~rows[0].isnan()].all()
                assert rows.isnan().eq(rows[0].isnan()).all()
                seen.append([str(x) for x in rows[0].tolist()])
    return seen


@needs_torch
def test_minus_zero_is_less_and_a_nan_stays(members: Any) -> None:
    for seen in members(3).run.call(_extrema).get():
        assert seen == [LEAST] * 8 + [MOST] * 8


def _structures(group: Any) -> Any:
    import torch

    tensor = torch.full((4, 6), float(group.rank))
    array = np.full(5, group.rank, np.float64)
    given = {"t": tensor.t(), "a": array[1::2], "s": array[::2], "n": np.float32([1])}
    result = group.allreduce(given, op="sum").result()
    assert result is given
    assert given["n"][0] == group.size
    assert tensor.eq(sum(range(group.size))).all()  # through the transposed view
    return array.tolist()


@needs_torch
def test_views_dicts_and_mixed_types_are_reduced_in_place(members: Any) -> None:
    assert members(2).run.call(_structures).get() == [[1.0] * 5] * 2


def _out_of_place(group: Any) -> Any:
    array, out = np.full(100_000, group.rank + 1.0), np.zeros(100_000)
    assert group.allreduce([array], op="mean", out=[out]).result()[0] is out
    return float(array[0]), float(out[-1])


def test_inputs_stay_as_they_are_when_results_go_elsewhere(members: Any) -> None:
    assert members(3).run.call(_out_of_place).get() == [(1, 2), (2, 2), (3, 2)]


def _module(group: Any) -> Any:
    import torch

    torch.set_num_threads(1)  # processes that use all cores each are slow
    torch.manual_seed(group.rank)
    model = torch.nn.Sequential(torch.nn.Linear(30, 20), torch.nn.Linear(20, 1))
    group.broadcast([p.data for p in model.parameters()], root=0).wait()
    model(torch.randn(8, 30)).sum().backward()
    group.allreduce([p.grad for p in model.parameters()]).wait()
    with torch.no_grad():
        return b"".join(
            (p - 0.1 * p.grad).numpy().tobytes() for p in model.parameters()
        )


@needs_torch
def test_models_are_the_same_after_a_broadcast_and_an_average(members: Any) -> None:
    results = members(4).run.call(_module).get()
    assert len(set(results)) == 1


def _moved(group: Any) -> Any:
    row = np.arange(3.0) + 10 * group.rank
    gathered = group.all_gather(row).result()
    mine = group.reduce_scatter(gathered, op="sum").result()
    text = np.frombuffer(b"abcd" if group.rank == 1 else b"....", "S1").copy()
    group.broadcast([text], root=1).wait()
    return gathered.tolist(), mine.tolist(), text.tobytes()


def test_gather_scatter_and_broadcast(members: Any) -> None:
    rows = [[0.0, 1, 2], [10, 11, 12], [20, 21, 22]]
    for rank, result in enumerate(members(3).run.call(_moved).get()):
        assert result == (rows, [3 * x for x in rows[rank]], b"abcd")


def test_work_can_be_awaited_and_overlaps(members: Any) -> None:
    assert members(2).run.call(_overlapped).get() == [True, True]


def _overlapped(group: Any) -> bool:
    import asyncio

    arrays = [np.full(50_000, float(i)) for i in range(8)]
    works = [group.allreduce(a, op="sum").start() for a in arrays]

    async def rest() -> Any:
        return await group.allreduce(np.ones(3), op="sum")

    assert asyncio.run(rest())[0] == group.size
    assert all(work.done() for work in works)
    for work in works:
        work.wait(timeout=0)
    return all(a[0] == i * group.size for i, a in enumerate(arrays))


BAD: list[tuple[tuple[Any, ...], type[Exception], str]] = [
    (([None],), TypeError, "leave it out, or pass zeros"),
    ((["text"],), TypeError, "neither an array nor a tensor"),
    ((3,), TypeError, "not int"),
    ((np.array([object()]),), TypeError, "Python objects"),
    ((np.array([1, 2]), "mean"), TypeError, "'mean' is not defined for int64"),
    ((np.array([True]), "sum"), TypeError, "'sum' is not defined for bool"),
    ((np.frombuffer(b"12345678"), "sum"), ValueError, "read-only"),
]


def test_a_bad_argument_is_refused_at_once(session: Any) -> None:
    with moo.LearnerGroup("bad", min_size=1) as group:
        for arguments, error, words in BAD:
            with pytest.raises(error, match=words):
                group.allreduce(*arguments)
        with pytest.raises(TypeError, match="join by its name"):
            pickle.dumps(group)
        group.barrier()
