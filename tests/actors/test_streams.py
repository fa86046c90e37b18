# SPDX-License-Identifier: MIT
from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest

import mooactor as moo
from tests.actors.counter import Async, Counter
from tests.conftest import eventually


def test_a_generator_streams_its_items_in_order(spawn: Any) -> None:
    assert list(spawn(Counter).up_to(100)) == list(range(100))


def test_an_empty_generator_is_an_empty_stream(spawn: Any) -> None:
    assert list(spawn(Counter).up_to(0)) == []


@pytest.mark.parametrize("window", [1, 2, 3, 64])
def test_the_producer_stops_when_the_consumer_is_slow(spawn: Any, window: int) -> None:
    counter = spawn(Counter)
    stream = counter.up_to.options(stream_window=window)(1000)
    assert next(stream) == 0
    # Other calls run while the producer has no room, and show how far it is.
    assert counter.add(0) <= window + 1
    assert list(stream) == list(range(1, 1000))


def test_items_come_before_the_exception_that_ends_them(spawn: Any) -> None:
    stream = spawn(Counter).up_to_error(20)
    got = []
    with pytest.raises(ValueError, match="no more"):
        for item in stream:
            got.append(item)
    assert got == list(range(20))


def test_closing_a_stream_ends_the_producer(spawn: Any) -> None:
    counter = spawn(Counter)
    with counter.up_to(1_000_000) as stream:
        assert next(stream) == 0
    assert eventually(lambda: counter.notes() == ["closed"])


def test_dropping_a_stream_ends_the_producer(spawn: Any) -> None:
    counter = spawn(Counter)
    stream = counter.up_to(1_000_000)
    assert next(stream) == 0
    del stream
    assert eventually(lambda: counter.notes() == ["closed"])


def test_two_streams_of_one_actor_do_not_block_each_other(spawn: Any) -> None:
    counter = spawn(Counter)
    first, second = counter.up_to(100), counter.up_to(100)
    pairs = list(zip(first, second, strict=True))
    assert pairs == [(i, i) for i in range(100)]


def test_calls_run_while_a_stream_waits_for_its_consumer(spawn: Any) -> None:
    counter = spawn(Counter)
    total = 0
    for _ in counter.up_to(50):
        total += 1
        assert counter.echo(total) == total
    assert total == 50


@pytest.mark.parametrize("method", ["numbers", "plain_numbers"])
def test_generators_of_async_actors_stream(spawn: Any, method: str) -> None:
    actor = spawn(Async)
    assert list(getattr(actor, method)(70)) == list(range(70))

    async def main() -> list[int]:
        return [i async for i in getattr(actor, method)(70)]

    assert asyncio.run(main()) == list(range(70))


def test_a_sync_actor_streams_to_async_for(spawn: Any) -> None:
    counter = spawn(Counter)

    async def main() -> list[int]:
        return [i async for i in counter.up_to(70)]

    assert asyncio.run(main()) == list(range(70))


def test_the_death_of_the_producer_ends_the_stream(spawn: Any) -> None:
    counter = spawn(Counter)
    stream = counter.up_to(1_000_000)
    assert next(stream) == 0
    moo.kill(counter)
    with pytest.raises(moo.ActorDied):
        for _ in stream:
            pass


def test_an_actor_can_consume_the_stream_of_another(spawn: Any) -> None:
    @moo.actor
    class Consumer:
        def total(self, producer: Any, n: int) -> int:
            return sum(producer.up_to(n))

    assert spawn(Consumer).total(spawn(Counter), 200) == sum(range(200))


def test_a_stream_cannot_be_pickled(spawn: Any) -> None:
    stream = spawn(Counter).up_to(3)
    with pytest.raises(TypeError, match="one consumer"):
        pickle.dumps(stream)
    assert list(stream) == [0, 1, 2]


def test_iterating_a_stream_on_a_loop_raises(spawn: Any) -> None:
    stream = spawn(Counter).up_to(3)

    async def main() -> None:
        with pytest.raises(RuntimeError, match="event loop"):
            next(stream)

    asyncio.run(main())
    stream.close()
