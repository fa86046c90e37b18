# SPDX-License-Identifier: MIT
"""Calls whose sending a signal handler ends, at any point: what they lent is free."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.process.current import current_runtime
from tests.conftest import eventually
from tests.interruptions import points

SIZE = 1 << 18


class Adder:
    def total(self, *arrays: Any) -> int:
        return sum(int(array.sum()) for array in arrays)


def plainly(group: Any, data: Any) -> None:
    group[0].total.remote(data, data)


def with_retries(group: Any, data: Any) -> None:
    group[0].total.options(retries=1, timeout=60).remote(data)


def telling(group: Any, data: Any) -> None:
    group[0].total.tell(data)


def to_a_group(group: Any, data: Any) -> None:
    group.call(Adder.total, data)


def leases() -> int:
    gc.collect()
    return int(current_runtime().statistics()["memory"]["leases"])


@pytest.mark.slow
@pytest.mark.parametrize("send", [plainly, with_retries, telling, to_a_group])
def test_what_an_interrupted_call_lent_is_free(send: Callable[..., None]) -> None:
    with moo.init():
        group, data = moo.on(Adder).group(2), np.ones(SIZE, np.uint8)
        assert group.call(Adder.total, data).get() == [SIZE, SIZE]
        for point in points():
            point.interrupt(lambda: send(group, data))
            assert group.call(Adder.total).get() == [0, 0]
            assert eventually(lambda: leases() == 0), point.where
