# SPDX-License-Identifier: MIT
from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from tests.actors.counter import Counter
from tests.conftest import eventually


def test_a_plain_call_returns_the_value(spawn: Any) -> None:
    counter = spawn(Counter, 5)
    assert counter.add(2) == 7
    assert counter.add() == 8


def test_the_actor_runs_in_another_process(spawn: Any) -> None:
    import os

    assert spawn(Counter).pid() != os.getpid()


def test_keyword_arguments_and_mixed_ones_arrive(spawn: Any) -> None:
    counter = spawn(Counter)
    assert counter.pair(1, b=[2, {"x": 3}]) == (1, [2, {"x": 3}])
    assert counter.add(amount=4) == 4


@pytest.mark.parametrize(
    "value",
    [None, 0, -1.5, "text", b"bytes", True, (), [1, (2,)], {"k": {1, 2}}, 1 << 80, ...],
)
def test_values_come_back_as_they_went(spawn: Any, value: Any) -> None:
    assert spawn(Counter).echo(value) == value


def test_large_plain_values_travel_too(spawn: Any) -> None:
    value = {"text": "x" * 3_000_000, "bytes": b"y" * 2_000_000}
    assert spawn(Counter).echo(value) == value


def test_calls_of_one_caller_run_in_order(spawn: Any) -> None:
    counter = spawn(Counter)
    refs = [counter.note.remote(i) for i in range(500)]
    moo.get(refs)
    assert counter.notes() == list(range(500))


def test_plain_remote_and_tell_keep_one_order(spawn: Any) -> None:
    counter = spawn(Counter)
    for i in range(0, 90, 3):
        counter.note.tell(i)
        counter.note.remote(i + 1)
        counter.note(i + 2)
    assert counter.notes() == list(range(90))


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
    assert first.call_later(second, "add", 5) == 20


def test_handles_travel_in_arguments_and_results(spawn: Any) -> None:
    first, second = spawn(Counter), spawn(Counter, 3)
    again = first.echo({"handle": second})["handle"]
    assert again == second
    assert hash(again) == hash(second)
    assert again.add() == 4


def test_a_class_defined_in_the_test_is_sent_by_value(spawn: Any) -> None:
    factor = 3

    class Local:
        def times(self, x: int) -> int:
            return factor * x

    assert spawn(Local).times(4) == 12


def test_functions_and_lambdas_travel(spawn: Any) -> None:
    assert spawn(Counter).echo(lambda x: x + 1)(1) == 2


def test_more_calls_than_the_bound_wait_for_room(spawn: Any) -> None:
    @moo.actor(max_pending=8)
    class Small:
        def echo(self, x: int) -> int:
            return x

    small = spawn(Small)
    refs = [small.echo.remote(i) for i in range(200)]
    assert moo.get(refs) == list(range(200))


def test_at_the_bound_a_raising_actor_raises_overloaded(
    spawn: Any, tmp_path: Path
) -> None:
    @moo.actor(max_pending=3, overflow="raise")
    class Small(Counter):
        pass

    small, gate = spawn(Small), tmp_path / "gate"
    refs = [small.until.remote(gate) for _ in range(3)]
    one_too_many = small.add.remote()
    with pytest.raises(moo.Overloaded) as caught:
        one_too_many.get()
    assert caught.value.delivered is False
    gate.touch()
    moo.get(refs)
    assert small.add() == 1


@moo.actor(max_pending=4)
class Feeding:
    """Calls itself."""

    def __init__(self) -> None:
        self.eaten = 0

    def eat(self) -> None:
        self.eaten += 1

    def meals(self) -> int:
        return self.eaten

    def feed(self, meals: int) -> list[BaseException | None]:
        me = moo.current().handle
        refs = [me.eat.remote() for _ in range(meals)]
        return [ref.exception() for ref in refs if ref.done()]


def test_an_actor_that_would_wait_for_itself_is_overloaded(spawn: Any) -> None:
    actor = spawn(Feeding)
    errors = actor.feed.options(timeout=20.0).remote(6).get()
    assert [type(error) for error in errors] == [moo.Overloaded] * 2
    assert all(error.delivered is False for error in errors)
    assert "itself" in str(errors[0])
    assert eventually(lambda: actor.meals() == 4)


def test_an_actor_waits_for_the_replies_of_its_calls_to_itself(spawn: Any) -> None:
    """They have ended, and that is still on its way to it."""
    actor = spawn(Feeding)
    for meals in range(0, 80, 4):
        assert eventually(lambda meals=meals: actor.meals() == meals)  # type: ignore[misc]
        assert actor.feed(4) == []


def test_higher_priorities_overtake(spawn: Any) -> None:
    counter = spawn(Counter)
    blocker = counter.until_queued.options(priority=9).remote(9)
    refs = [
        counter.note.options(priority=p).remote((p, i))
        for i in range(3)
        for p in (0, 5, -5)
    ]
    moo.get([blocker, *refs])
    expected = [(p, i) for p in (5, 0, -5) for i in range(3)]
    assert counter.notes() == expected


def test_current_knows_the_actor_and_its_caller(spawn: Any) -> None:
    counter = spawn(Counter)
    handle, name, caller = counter.who()
    assert handle == counter
    assert name == "Counter"
    assert len(caller) == 16


def test_current_outside_of_an_actor_says_so() -> None:
    with pytest.raises(moo.ActorUnavailable, match="methods of actors"):
        moo.current()


def test_stats_come_back_to_rest(spawn: Any) -> None:
    counter = spawn(Counter)
    moo.get([counter.add.remote() for _ in range(50)])
    assert moo.stats()["calls_pending"] == 0
