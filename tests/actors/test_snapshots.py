# SPDX-License-Identifier: MIT
"""A snapshot follows every call that may have changed the state, before its answer."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import mooactor as moo
from tests.conftest import eventually

WAIT_S = 20.0


class Saved:
    def __init__(self) -> None:
        self.count = 0
        self.refuse = False

    def add(self) -> int:
        self.count += 1
        return self.count

    def add_and_fail(self) -> None:
        self.count += 1
        raise ValueError("after the change")

    def add_while_yielding(self, n: int) -> Iterator[int]:
        try:
            for _ in range(n):
                self.count += 1
                yield self.count
        finally:
            self.count += 100

    @moo.method(read_only=True)
    def get(self) -> int:
        return self.count

    @moo.method(read_only=True)
    def cheat(self) -> int:
        self.count += 1
        raise KeyError("it said that it changes nothing")

    def refuse_snapshots(self, refuse: bool, fail: bool = False) -> int:
        self.refuse = refuse
        self.count += 1
        if fail:
            raise KeyError("own")
        return self.count

    def crash(self) -> None:
        os._exit(1)

    def __snapshot__(self) -> int:
        if self.refuse:
            raise ArithmeticError("not now")
        return self.count

    def __restore__(self, count: int) -> None:
        self.count = count


@moo.actor
class Serial(Saved):
    """One at a time."""


@moo.actor
class Async(Saved):
    async def stream_later(self, n: int) -> AsyncIterator[int]:
        for _ in range(n):
            self.count += 1
            yield self.count


both = pytest.mark.parametrize("kind", [Serial, Async], ids=lambda kind: kind.__name__)


def reborn(actor: Any) -> Any:
    """Its state after a death."""
    assert isinstance(actor.crash.remote().exception(WAIT_S), moo.ActorRestarted)
    return actor.get.remote().get(timeout=WAIT_S)


def start(spawn: Any, kind: Any) -> Any:
    return spawn(moo.on(kind, restart=moo.Restart(max=20)))


@both
def test_every_call_that_may_change_something_is_followed_by_one(
    spawn: Any, kind: Any
) -> None:
    actor = start(spawn, kind)
    assert isinstance(actor.add_and_fail.remote().exception(WAIT_S), ValueError)
    assert reborn(actor) == 1
    assert isinstance(actor.cheat.remote().exception(WAIT_S), KeyError)
    assert reborn(actor) == 1  # it is said to be read-only
    assert list(actor.add_while_yielding(3)) == [2, 3, 4]
    assert reborn(actor) == 104
    with actor.add_while_yielding(100) as stream:
        assert next(stream) == 105
    assert eventually(lambda: actor.get.remote().get(timeout=WAIT_S) > 200)
    assert reborn(actor) > 200
    if kind is Async:
        before = actor.get.remote().get()
        assert list(actor.stream_later(2)) == [before + 1, before + 2]
        assert reborn(actor) == before + 2


@both
def test_a_state_that_cannot_be_saved_is_not_shown(spawn: Any, kind: Any) -> None:
    actor = start(spawn, kind)
    error = actor.refuse_snapshots.remote(True).exception(WAIT_S)
    assert isinstance(error, ArithmeticError)
    assert "could not be saved" in "\n".join(error.__notes__)
    error = actor.refuse_snapshots.remote(True, fail=True).exception(WAIT_S)
    assert isinstance(error, KeyError)
    assert "not now" in "\n".join(error.__notes__)
    stream = actor.add_while_yielding(2)
    with pytest.raises(ArithmeticError, match="not now"):
        list(stream)
    assert actor.get.remote().get(timeout=WAIT_S) == 104  # it lives
    assert actor.refuse_snapshots.remote(False).get(timeout=WAIT_S) == 105
    assert reborn(actor) == 105
