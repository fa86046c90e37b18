# SPDX-License-Identifier: MIT
"""Calls whose sending a signal handler ends, at any point: what they lent is free."""

from __future__ import annotations

import gc
import sys
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

    def make(self) -> Any:
        return np.ones(SIZE, np.uint8)

    def same(self, value: Any) -> Any:
        return value

    def length(self, *args: Any) -> int:
        return len(args)

    def put(self) -> Any:
        return [moo.put(np.ones(SIZE, np.uint8))]

    def kept(self) -> int:
        """Values that are here for calls or on their way, and those owned here."""
        return kept()


def kept() -> int:
    gc.collect()
    runtime = current_runtime()
    runtime.objects.sweep()
    return len(runtime.values) + len(runtime.objects)


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


def used() -> int:
    """Bytes of shared memory."""
    return int(moo.stats()["memory"]["used_bytes"])


def stored(group: Any) -> Any:
    return moo.put(np.ones(SIZE, np.uint8))


def result(group: Any) -> Any:
    ref = group[1].make.remote()
    ref.get()
    return ref


def borrowed(group: Any) -> Any:
    return group[1].put.remote().get()[0]


def inside(group: Any, ref: Any) -> None:
    group[0].length.remote([ref, ref])


def inside_for_a_group(group: Any, ref: Any) -> None:
    group.call(Adder.length, [ref])


def as_an_argument(group: Any, ref: Any) -> None:
    group[0].total.remote(ref, ref)


def telling_of_it(group: Any, ref: Any) -> None:
    group[0].total.tell(ref)


@pytest.mark.slow
@pytest.mark.parametrize(
    "send", [inside, inside_for_a_group, as_an_argument, telling_of_it]
)
@pytest.mark.parametrize("make", [stored, result, borrowed])
def test_the_refs_of_an_interrupted_call_are_free(
    make: Callable[..., Any], send: Callable[..., None]
) -> None:
    with moo.init():
        group = moo.on(Adder).group(2)

        def nothing_is_kept() -> bool:
            everywhere = [*group.call(Adder.kept).get(), kept()]
            return not any(everywhere) and not leases()

        for point in points():
            ref = make(group)
            point.interrupt(lambda ref=ref: send(group, ref))
            assert group.call(Adder.length).get() == [0, 0]
            del ref
            assert eventually(nothing_is_kept), point.where


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_an_interrupted_put_keeps_nothing(step: int) -> None:
    with moo.init():
        for point in points(step):
            point.interrupt(lambda: moo.put(np.ones(SIZE, np.uint8)))
            assert eventually(lambda: not kept() and not used()), point.where


@pytest.mark.parametrize("argument", [None, 1, np.ones(SIZE, np.uint8)])
def test_a_call_runs_no_destructor_of_pythons(argument: Any) -> None:
    """Python drops the Ctrl-C that comes meanwhile. Nor does a call with the Refs of
    others."""
    ran: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name == "__del__":
            ran.append(frame.f_code.co_qualname)

    with moo.init():
        actor = moo.spawn(Adder)
        actor.same(argument)
        sys.setprofile(note)
        try:
            for _ in range(3):
                actor.same(argument)
                moo.get([actor.same.remote(argument) for _ in range(3)])
                actor.length([actor.same.remote(argument)])
        finally:
            sys.setprofile(None)
    assert ran == []
