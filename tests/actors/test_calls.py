# SPDX-License-Identifier: MIT
from __future__ import annotations

import os
import threading
from typing import Any

import pytest

import mooactor as moo
from tests.actors.counter import Counter


def test_a_plain_call_returns_the_value_from_another_process(spawn: Any) -> None:
    counter = spawn(Counter, 5)
    assert counter.add(2) == 7
    assert counter.add(amount=4) == 11
    assert counter.pair(1, b=[2, {"x": 3}]) == (1, [2, {"x": 3}])
    assert counter.pid() != os.getpid()


def test_values_come_back_as_they_went(spawn: Any) -> None:
    counter = spawn(Counter)
    for value in (None, 0, -1.5, "text", b"bytes", True, (), [1, (2,)], 1 << 80, ...):
        assert counter.echo(value) == value
    large = {"text": "x" * 3_000_000, "bytes": b"y" * 2_000_000, "set": {1, 2}}
    assert counter.echo(large) == large
    assert counter.echo(lambda x: x + 1)(1) == 2


def test_calls_of_one_caller_run_in_order(spawn: Any) -> None:
    counter = spawn(Counter)
    for i in range(0, 300, 3):
        counter.note.tell(i)
        counter.note.remote(i + 1)
        counter.note(i + 2)
    moo.get([counter.note.remote(i) for i in range(300, 700)])
    assert counter.notes() == list(range(700))
    assert moo.stats()["calls_pending"] == 0


def test_calls_of_several_threads_all_get_their_own_results(spawn: Any) -> None:
    counter = spawn(Counter)
    results: dict[int, list[int]] = {}

    def work(n: int) -> None:
        results[n] = [counter.echo((n, i))[1] for i in range(200)]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: list(range(200)) for n in range(4)}


def test_actors_call_each_other(spawn: Any) -> None:
    first, second = spawn(Counter), spawn(Counter, 10)
    assert first.call(second, "add", 5) == 15
    again = first.echo({"handle": second})["handle"]
    assert again == second and hash(again) == hash(second)
    assert again.add() == 16


def test_a_class_defined_in_the_test_is_sent_by_value(spawn: Any) -> None:
    factor = 3

    class Local:
        def times(self, x: int) -> int:
            return factor * x

    assert spawn(Local).times(4) == 12


def test_higher_priorities_overtake(spawn: Any) -> None:
    counter = spawn(Counter)
    blocker = counter.until_queued.options(priority=9).remote(9)
    refs = [
        counter.note.options(priority=p).remote((p, i))
        for i in range(3)
        for p in (0, 5, -5)
    ]
    moo.get([blocker, *refs])
    assert counter.notes() == [(p, i) for p in (5, 0, -5) for i in range(3)]


def test_current_knows_the_actor_and_its_caller(spawn: Any) -> None:
    counter = spawn(Counter)
    handle, name, caller = counter.who()
    assert (handle, name, len(caller)) == (counter, "Counter", 16)
    with pytest.raises(moo.ActorUnavailable, match="methods of actors"):
        moo.current()
