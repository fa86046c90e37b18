# SPDX-License-Identifier: MIT
from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest

import mooactor as moo
from mooactor.process.current import current_runtime
from tests.actors.counter import Async, Counter
from tests.conftest import eventually


def test_call_returns_the_values_in_rank_order(group: Any) -> None:
    members = group(Counter, 4)
    assert len(set(members.call(Counter.pid).get())) == 4
    ranks = members.call_each(Counter.echo, [(i,) for i in range(4)])
    assert ranks.get() == [0, 1, 2, 3]
    assert ranks.get(return_exceptions=True) == [0, 1, 2, 3]
    assert group(Async, 2).call(Async.nap, 0.01).get() == [0.01, 0.01]


def test_a_group_is_a_list_of_handles_that_travels(group: Any) -> None:
    members = group(Counter, 3, 10)
    assert len(members) == 3 and isinstance(members[:2], moo.Group)
    assert members.add.call(5).get() == [15] * 3  # the untyped spelling
    members.add.tell(1)
    members[1:].tell(Counter.add, 7)
    assert [handle.add(0) for handle in members] == [16, 23, 23]
    copy = pickle.loads(pickle.dumps(members))
    assert copy[0].add(1) == 17
    for name in ("total", "_handles"):
        with pytest.raises(AttributeError, match=f"'{name}'.*group"):
            setattr(members, name, 3)
        with pytest.raises(AttributeError, match=f"'{name}'.*group"):
            delattr(members, name)
    with pytest.raises(AttributeError, match="no method 'nope'"):
        _ = members.nope
    assert moo.on(Counter).group(0).call(Counter.pid).get() == []


def test_refs_as_arguments_of_a_group_reach_every_member(
    group: Any, spawn: Any
) -> None:
    counter, members = spawn(Counter), group(Counter, 3)
    pending = counter.sleep.remote(0.1)
    called = members.call(Counter.echo, pending)
    assert called.get() == [0.1] * 3
    assert counter.echo(called) == [0.1] * 3
    (inside,) = counter.echo([called])
    assert inside.get() == [0.1] * 3
    gathered = members.call(Counter.sleep, 0.1)
    assert counter.pair(gathered, b=members.call(Counter.echo, gathered)) == (
        [0.1] * 3,
        [[0.1] * 3] * 3,
    )
    with pytest.raises(KeyError):
        counter.echo(members.call(Counter.fail, KeyError("k")))
    del called, inside, gathered
    assert eventually(lambda: moo.stats()["objects"] == 0)


def test_a_member_that_fails_or_is_dead_fails_the_call(group: Any) -> None:
    members = group(Counter, 4)
    with pytest.raises(KeyError):
        members.call(Counter.fail, KeyError("k")).get()
    moo.kill(members[1])
    values = members.call(Counter.add, 2).get(return_exceptions=True)
    assert [values[0], values[2], values[3]] == [2, 2, 2]
    assert isinstance(values[1], moo.ActorDied)
    with pytest.raises(moo.ActorDied):
        members.call(Counter.add).get()
    assert members[3].add(0) == 3


class Falsy(Exception):
    def __len__(self) -> int:
        return 0


class Notes:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def add(self, number: Any) -> int:
        self.calls.append(number)
        return len(self.calls)

    def __call__(self, number: int) -> int:
        return 2 * number

    def numbers(self, count: int) -> Any:
        yield from range(count)

    def fail(self) -> None:
        raise Falsy("of several parts")


def test_call_each_calls_all_or_none(group: Any) -> None:
    members = group(Notes, 3)
    with pytest.raises(ValueError, match="2 tuples for 3 members"):
        members.call_each(Notes.add, [(1,), (2,)])
    with pytest.raises(TypeError, match="too many positional arguments"):
        members.call_each(Notes.add, [(1,), (2,), (3, 4)])
    assert members.call(Notes.add, 1).get() == [1, 1, 1]
    with pytest.raises(TypeError, match="cannot be pickled"):
        members.call_each(Notes.add, [(1,), (2,), (threading.Lock(),)])
    # Those that were given up may have begun. Their replies are read on the way.
    assert all(number <= 3 for number in members.call(Notes.add, 1).get())
    assert current_runtime().statistics()["calls_pending"] == 0


@pytest.mark.parametrize("way", ["call", "tell", "map", "call_each"])
def test_a_generator_of_a_group_is_refused(group: Any, way: str) -> None:
    members = group(Notes, 2)
    arguments = {"map": [1], "call_each": [(1,), (2,)]}.get(way, 1)
    with pytest.raises(TypeError, match="iterate over the members' own streams"):
        getattr(members, way)(Notes.numbers, arguments)


def test_call_is_a_method_like_others(group: Any) -> None:
    members = group(Notes, 2)
    assert members.call(Notes.__call__, 3).get() == [6, 6]
    assert members.call_each(Notes.__call__, [(1,), (2,)]).get() == [2, 4]
    assert list(members.map(Notes.__call__, [1, 2, 3])) == [2, 4, 6]
    with pytest.raises(AttributeError, match="private methods cannot be called"):
        members.call(Notes.__init__)
    found = members.call(Notes.fail).get(return_exceptions=True)
    assert [type(one) for one in found] == [Falsy, Falsy]  # which is false, an error
