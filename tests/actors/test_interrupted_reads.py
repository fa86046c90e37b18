# SPDX-License-Identifier: MIT
"""A read that a signal handler cuts short at any point has changed nothing: repeated,
it gives the value, with its Refs held, and nothing is left afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import mooactor as moo
from mooactor.actors.mapping import Map
from mooactor.process.current import current_runtime
from tests.actors.keeper import Keeper, number_in, value
from tests.actors.test_ref_ownership import all_is_given_back
from tests.conftest import eventually
from tests.interruptions import points
from tests.marks import slow
from tests.processes import stop


class Makes(Keeper):
    def pair(self, number: int) -> Any:
        return value(number), moo.put(value(number))

    def nested(self, number: int) -> Any:
        return [moo.put(self.pair(number))]

    def pairs(self, count: int) -> Iterator[Any]:
        for number in range(count):
            yield self.pair(number)


Read = tuple[Callable[[], Any], Callable[[Any], Any]]  # and what to make of its value


def number_of(pair: Any) -> int:
    """The number of a pair, whose Ref must be held."""
    number = number_in(pair[0])
    assert number_in(pair[1].get(timeout=20)) == number
    return number


def a_result(actor: Any) -> Read:
    ref = actor.pair.remote(7)
    moo.wait([ref])
    return ref.get, number_of


def a_result_to_come(actor: Any) -> Read:
    return actor.pair.remote(7).get, number_of


def one_of_two_results(actor: Any) -> Read:
    array, ref = actor.pair.options(num_returns=2).remote(7)
    return ref.get, lambda inner: number_of((array.get(), inner))


def an_error(actor: Any) -> Read:
    actor.keep(0, [moo.put(value(7))])
    ref = actor.fail_with.remote(0)
    moo.wait([ref])
    return ref.exception, lambda error: number_in(error.args[0][0].get(timeout=20))


def a_borrowed_value(actor: Any) -> Read:
    (ref,) = actor.nested(7)
    return lambda: ref.get(timeout=20), number_of


def a_stored_value(actor: Any) -> Read:
    ref = moo.put(actor.pair(7))
    return ref.get, number_of


def rest_of(stream: Any) -> Callable[[Any], int]:
    def numbers(first: Any) -> int:
        assert [number_of(pair) for pair in (first, *stream)] == [0, 1, 2]
        return 7

    return numbers


def an_item(actor: Any) -> Read:
    stream = actor.pairs.options(stream_window=1)(3)
    return lambda: next(stream), rest_of(stream)


def an_item_of_async_for(actor: Any) -> Read:
    stream = actor.pairs.options(stream_window=1)(3)
    arrived = stream.channel.items
    assert eventually(lambda: (current_runtime().look(), arrived)[1])

    def read() -> Any:
        try:
            stream.__anext__().send(None)  # without a loop, which would see it first
        except StopIteration as done:
            return done.value

    return read, rest_of(stream)


def an_item_of_a_map(actor: Any) -> Read:
    # Whether an attempt has run is not known if it was interrupted: there are others.
    options: Any = {"ordered": True, "in_flight": 1, "retries": 1}
    items = Map([actor.pair], range(3), **options)
    return lambda: next(items), rest_of(items)


READS = [
    a_result,
    a_result_to_come,
    one_of_two_results,
    an_error,
    a_borrowed_value,
    a_stored_value,
    an_item,
    an_item_of_async_for,
    an_item_of_a_map,
]


@pytest.mark.parametrize("step", [5, slow(1)])  # at one of so many points
@pytest.mark.parametrize("begin", READS, ids=lambda begin: begin.__name__)
def test_a_read_that_is_interrupted_can_be_repeated(
    spawn: Any, begin: Callable[[Any], Read], step: int
) -> None:
    actor = spawn(Makes)
    done = 0
    for point in points(step):
        read, number = begin(actor)
        if point.interrupt(read):
            actor.sleep(0)  # it has heard of all that was given back
            assert number(read()) == 7, point.where
            done += 1
        del read, number
    assert done > 20 // step
    actor.drop_all()
    all_is_given_back(actor)


@pytest.mark.parametrize("step", [5, slow(1)])
def test_a_time_out_that_is_interrupted_reaches_who_was_to_learn_of_it(
    spawn: Any, step: int
) -> None:
    actor = spawn(Makes)
    pid = actor.pid()
    waiting = dict[str, Any]()
    stop(pid)  # so it answers nothing, also no cancellation
    try:
        for point in points(step):
            ref = actor.pair.options(timeout=2.0).remote(7)
            heard = threading.Event()
            ref.listen(heard.set)  # as for a process that was handed the Ref
            if point.interrupt(ref.expire):
                waiting[point.where] = heard, ref
        assert len(waiting) > 10 // step
        for where, (heard, _) in waiting.items():
            assert heard.wait(20), where
    finally:
        os.kill(pid, signal.SIGCONT)


class Runs:
    """Remembers what has run."""

    def __init__(self) -> None:
        self.items: list[int] = []

    def run(self, item: int) -> int:
        self.items.append(item)
        return item

    def all(self) -> list[int]:
        return self.items


@pytest.mark.parametrize("step", [5, slow(1)])
def test_no_item_of_a_map_runs_twice_without_retries(spawn: Any, step: int) -> None:
    actor = spawn(Runs)
    first = 0
    for point in points(step):
        options: Any = {"ordered": True, "in_flight": 2, "retries": 0}
        results = Map([actor.run], range(first, first + 5), **options)
        point.interrupt(lambda: next(results))
        with contextlib.suppress(moo.ActorUnavailable):
            list(results)
        first += 5
    items = actor.all()
    assert len(items) == len(set(items)) > 20 // step


class Opens:
    """Counts its generators that have begun and not ended."""

    def __init__(self) -> None:
        self.open = 0

    def items(self) -> Iterator[int]:
        self.open += 1
        try:
            yield from range(1000)
        finally:
            self.open -= 1

    def count(self) -> int:
        return self.open


@pytest.mark.parametrize("step", [5, slow(1)])
def test_a_stream_whose_start_is_interrupted_ends(spawn: Any, step: int) -> None:
    actor = spawn(Opens)
    done = 0
    for point in points(step):
        done += bool(point.interrupt(lambda: next(actor.items())))
        assert eventually(lambda: not actor.count()), point.where
    assert done > 20 // step
