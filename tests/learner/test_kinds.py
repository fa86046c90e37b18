# SPDX-License-Identifier: MIT
"""Every kind of array and tensor in every collective: right values, or a refusal.

The table in docs/allreduce.md says which; `tests/kinds.py` has one of each kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests import kinds

pytest.importorskip("torch")  # and so the zygote has it

REDUCED = ("float32", "float64", "bfloat16", "int64")


def _collectives(group: Any) -> dict[str, Callable[[Any], Any]]:
    return {
        "allreduce": lambda x: group.allreduce([x], op="sum").wait(),
        "broadcast": lambda x: group.broadcast([x]).wait(),
        "all_gather": lambda x: group.all_gather(x).wait(),
        "reduce_scatter": lambda x: group.reduce_scatter(x, op="sum").wait(),
    }


def _reduces(value: Any) -> bool:
    if kinds.is_torch(value):
        return str(value.dtype).removeprefix("torch.") in REDUCED
    return value.dtype.name in REDUCED


def _in_numbers(value: Any) -> Any:
    """The values as they are read, in a new array of native form."""
    return np.array(kinds.values(value))


def _moved_right(group: Any, make: Callable[[], Any]) -> None:
    expected = kinds.values(make())
    given = make()
    if group.rank:
        given[...] = 0 if kinds.is_torch(given) else np.zeros((), given.dtype)
    group.broadcast([given]).wait()
    assert kinds.values(given) == expected
    assert given.dtype == make().dtype
    gathered = group.all_gather(make()).result()
    assert gathered.dtype == make().dtype
    assert kinds.values(gathered) == [expected] * group.size


def _reduced_right(group: Any, make: Callable[[], Any]) -> None:
    total = _in_numbers(make()) * group.size
    given = make()
    group.allreduce([given], op="sum").wait()
    assert kinds.values(given) == total.tolist()
    assert given.dtype == make().dtype
    row = group.reduce_scatter(make(), op="sum").result()
    assert kinds.values(row) == total[group.rank].tolist()
    source, out = make(), make()
    group.allreduce(
        [source], op="mean" if total.dtype.kind == "f" else "max", out=[out]
    ).wait()
    assert kinds.values(out) == kinds.values(source) == kinds.values(make())


def _refused(group: Any, make: Callable[[], Any]) -> None:
    for name, call in _collectives(group).items():
        with pytest.raises(TypeError) as refused:
            call(make())
        assert "\n" not in str(refused.value), name


def _refused_if_written(group: Any, make: Callable[[], Any]) -> None:
    for name in ("allreduce", "broadcast"):
        with pytest.raises(ValueError, match="read-only|share memory"):
            _collectives(group)[name](make())
    gathered = group.all_gather(make()).result()
    assert kinds.values(gathered) == [kinds.values(make())] * group.size


def _walk(group: Any, kind: str) -> str:
    """The verdict of collectives on a kind, in the words of the table."""
    verdict = kinds.table()[kind][0]
    for make in kinds.MAKERS[kind]:
        if verdict == "refused":
            _refused(group, make)
        elif verdict == "only where they are read":
            _refused_if_written(group, make)
        else:
            _moved_right(group, make)
            if "not reduced" not in verdict and _reduces(make()):
                _reduced_right(group, make)
    group.barrier()  # none the worse
    return kind


def _walk_all(group: Any) -> list[str]:
    return [_walk(group, kind) for kind in kinds.MAKERS]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_collectives_do_with_every_kind_what_the_table_says(members: Any) -> None:
    every = list(kinds.table())
    assert sorted(kinds.MAKERS) == sorted(every)
    for walked in members(2, timeout=10.0).run.call(_walk_all).get():
        assert sorted(walked) == sorted(every)


def _swapped_on_one(group: Any) -> Any:
    array = np.array([1.5, -3.0], ">f4" if group.rank else "<f4")
    group.allreduce(array, op="sum").wait()
    return array.tolist()


def test_members_may_have_different_byte_orders(members: Any) -> None:
    assert members(2, timeout=10.0).run.call(_swapped_on_one).get() == [[3.0, -6.0]] * 2
