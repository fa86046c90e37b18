# SPDX-License-Identifier: MIT
"""A value is what it was when it was returned, yielded or read, in all kinds of
actors; and what runs in which thread and context."""

from __future__ import annotations

import asyncio
import decimal
import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor import actor, method


@actor
class Mixed:
    """It has one thread for sync methods, and a loop."""

    def __init__(self, size: int = 1_000_000) -> None:
        self.obs = np.zeros(size, np.float32)
        self.local = threading.local()
        self.local.set = True
        self.base = sqlite3.connect(":memory:")
        self.thread = threading.get_ident()
        decimal.getcontext().prec = 5

    def step(self, value: int) -> np.ndarray:
        self.obs[:] = value
        return self.obs

    def steps(self, n: int) -> Iterator[np.ndarray]:
        for value in range(n):
            self.obs[:] = value
            yield self.obs

    def where(self) -> tuple[bool, bool, list[Any], str]:
        rows = self.base.execute("select 1").fetchall()
        same = threading.get_ident() == self.thread
        return same, hasattr(self.local, "set"), rows, str(decimal.Decimal(1) / 3)

    def thirds(self, n: int) -> Iterator[str]:
        with decimal.localcontext() as context, np.errstate(all="ignore"):
            context.prec = 3
            for _ in range(n):
                yield str(decimal.Decimal(1) / 3)

    async def ping(self) -> int:
        return 1


@actor(max_concurrency=4)
class Threads:
    def __init__(self) -> None:
        self.local = threading.local()

    def step(self, value: int) -> np.ndarray:
        if not hasattr(self.local, "obs"):
            self.local.obs = np.zeros(100_000, np.float32)
        self.local.obs[:] = value
        return self.local.obs


def values_of(array: np.ndarray) -> list[float]:
    return list(np.unique(array))


@pytest.mark.parametrize("cls", [Mixed, Threads])
def test_results_are_what_they_were_when_the_method_returned(
    cls: Any, spawn: Callable[..., Any]
) -> None:
    handle = spawn(cls)
    for _ in range(5):
        refs = [handle.step.remote(value) for value in range(20)]
        assert [values_of(ref.get()) for ref in refs] == [[v] for v in range(20)]


def test_items_are_what_they_were_when_they_were_yielded(
    spawn: Callable[..., Any],
) -> None:
    items = spawn(Mixed).steps.options(stream_window=8)(30)
    assert [values_of(item) for item in items] == [[v] for v in range(30)]


def test_the_constructor_and_sync_methods_have_one_thread_and_context(
    spawn: Callable[..., Any],
) -> None:
    handle = spawn(Mixed, 10)
    assert handle.where() == (True, True, [(1,)], "0.33333")


def test_each_stream_has_a_context_of_its_own(spawn: Callable[..., Any]) -> None:
    handle = spawn(Mixed, 10)
    streams = [handle.thirds(5), handle.thirds(5)]
    for _ in range(5):
        assert [next(stream) for stream in streams] == ["0.333", "0.333"]
    assert handle.where()[3] == "0.33333"


@actor
class Saved:
    """`left` and `right` are equal whenever no method runs."""

    def __init__(self) -> None:
        self.left = self.right = 0

    def both(self, n: int) -> int:
        for _ in range(n):
            self.left += 1
            self.right += 1
        return self.left

    async def one(self) -> int:
        self.left += 1
        self.right += 1
        return self.left

    @method(read_only=True)
    def state(self) -> tuple[int, int]:
        return self.left, self.right

    async def __snapshot__(self) -> tuple[int, int]:
        left = self.left
        await asyncio.sleep(0)
        return left, self.right

    async def __restore__(self, state: tuple[int, int]) -> None:
        await asyncio.sleep(0)
        self.left, self.right = state


def test_snapshots_may_be_async_and_are_whole(session: Any) -> None:
    handle = moo.on(Saved, restart=moo.Restart(max=3)).spawn()
    for _ in range(3):
        refs = [handle.both.remote(20_000) for _ in range(3)]
        refs += [moo.submit(handle.one) for _ in range(3)]
        moo.get(refs)
    before = handle.state()
    (info,) = [one for one in moo.actors() if one.handle == handle]
    assert info.pid is not None
    os.kill(info.pid, signal.SIGKILL)
    assert handle.state.options(retries=3)() == before == (before[0], before[0])
    moo.kill(handle)
