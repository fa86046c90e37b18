# SPDX-License-Identifier: MIT
from __future__ import annotations

import pickle
import signal
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
    ranks = members.call_each(Counter.echo, [(i,) for i in range(4)]).get()
    assert ranks == [0, 1, 2, 3]


def test_the_untyped_spelling_does_the_same(group: Any) -> None:
    members = group(Counter, 2, 10)
    assert members.add.call(5).get() == [15, 15]
    members.add.tell(1)
    assert members.add.call(0).get() == [16, 16]


def test_indexing_gives_a_handle_and_a_slice_a_group(group: Any) -> None:
    members = group(Counter, 3)
    assert len(members) == 3
    members[1:].tell(Counter.add, 7)
    assert [handle.add(0) for handle in members] == [0, 7, 7]
    assert members[0].add(1) == 1
    assert isinstance(members[:2], moo.Group)


def test_a_failing_member_fails_the_call_with_its_own_error(group: Any) -> None:
    members = group(Counter, 2)
    with pytest.raises(KeyError):
        members.call(Counter.fail, KeyError("k")).get()


def test_arguments_of_another_number_than_members_are_refused(group: Any) -> None:
    with pytest.raises(ValueError, match="3 tuples for 2 members"):
        group(Counter, 2).call_each(Counter.echo, [(1,), (2,), (3,)])


def test_an_unknown_method_of_a_group_says_so(group: Any) -> None:
    with pytest.raises(AttributeError, match="no method 'nope'"):
        _ = group(Counter, 2).nope


def test_a_group_travels(group: Any) -> None:
    members = group(Counter, 2, 1)
    copy = pickle.loads(pickle.dumps(members))
    assert copy.call(Counter.add, 1).get() == [2, 2]


def test_async_methods_of_a_group(group: Any) -> None:
    assert group(Async, 2).call(Async.nap, 0.01).get() == [0.01, 0.01]


def test_refs_as_arguments_of_a_group_reach_every_member(
    group: Any, spawn: Any
) -> None:
    pending = spawn(Counter).sleep.remote(0.1)
    assert group(Counter, 3).call(Counter.echo, pending).get() == [0.1] * 3


def test_an_empty_group_has_nothing_to_say(session: Any) -> None:
    assert moo.on(Counter).group(0).call(Counter.pid).get() == []
    with pytest.raises(ValueError, match="n=-1"):
        moo.on(Counter).group(-1)


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


class Falsy(Exception):
    def __len__(self) -> int:
        return 0


def test_call_each_calls_none_if_one_cannot_be_called(group: Any) -> None:
    members = group(Notes, 3)
    with pytest.raises(TypeError, match="too many positional arguments"):
        members.call_each(Notes.add, [(1,), (2,), (3, 4)])
    assert members.call(Notes.add, 1).get() == [1, 1, 1]


def test_call_each_gives_up_what_it_called_before_it_failed(group: Any) -> None:
    members = group(Notes, 3)
    lock = threading.Lock()
    with pytest.raises(TypeError, match="cannot be pickled"):
        members.call_each(Notes.add, [(1,), (2,), (lock,)])
    # Those that were given up may have begun. Their replies are read on the way.
    assert all(number <= 2 for number in members.call(Notes.add, 1).get())
    assert current_runtime().statistics()["calls_pending"] == 0


@moo.actor(max_pending=2)
class Gated(Notes):
    def until_cancelled(self) -> None:
        assert eventually(lambda: moo.current().cancelled)


@pytest.mark.parametrize("way", ["call", "tell", "call_each"])
def test_calls_that_an_exception_interrupts_are_given_up(group: Any, way: str) -> None:
    """The last member has no room, and a signal handler raises in the wait for it."""
    members = group(Gated, 3)
    blocked = [members[rank].until_cancelled.remote() for rank in (0, 1, 2, 2)]
    arguments = [(1,)] * 3 if way == "call_each" else 1
    before = signal.signal(signal.SIGALRM, lambda *_: 1 // 0)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(ZeroDivisionError):
            getattr(members, way)(Gated.add, arguments)
    finally:
        signal.signal(signal.SIGALRM, before)
    for ref in blocked:  # they learn of it after the calls that were given up before
        ref.cancel()
    assert members.call(Gated.add, 5).get() == [1, 1, 1]  # and no other has run
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


def test_an_error_that_is_false_is_an_error(group: Any) -> None:
    found = group(Notes, 2).call(Notes.fail).get(return_exceptions=True)
    assert [type(one) for one in found] == [Falsy, Falsy]
