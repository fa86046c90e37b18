# SPDX-License-Identifier: MIT
from __future__ import annotations

import asyncio
import pickle
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from tests.actors.counter import Async, Counter
from tests.conftest import eventually


@pytest.mark.parametrize(
    ("kind", "method"),
    [(Counter, "up_to"), (Async, "numbers"), (Async, "plain_numbers")],
)
def test_a_generator_streams_its_items_in_order(
    spawn: Any, kind: Any, method: str
) -> None:
    numbers = getattr(spawn(kind), method)

    async def main() -> list[int]:
        return [i async for i in numbers(70)]

    for n in (0, 1, 100):
        assert list(numbers(n)) == list(range(n))
    assert asyncio.run(main()) == list(range(70))


@pytest.mark.parametrize("window", [1, 2, 3, 64])
def test_the_producer_stops_when_the_consumer_is_slow(spawn: Any, window: int) -> None:
    counter = spawn(Counter)
    stream = counter.up_to.options(stream_window=window)(1000)
    for taken in range(70):
        assert next(stream) == taken
        # Other calls run while the producer has no room, and show how far it is.
        assert counter.add(0) <= taken + window + 1
    assert list(stream) == list(range(70, 1000))


def test_items_come_before_the_exception_that_ends_them(spawn: Any) -> None:
    stream = spawn(Counter).up_to_error(20)
    got = []
    with pytest.raises(ValueError, match="no more"):
        for item in stream:
            got.append(item)
    assert got == list(range(20))


@pytest.mark.parametrize("end", ["close", "drop"])
def test_the_end_of_the_consumer_ends_the_producer(spawn: Any, end: str) -> None:
    counter = spawn(Counter)
    stream = counter.up_to(1_000_000)
    assert next(stream) == 0
    if end == "close":
        stream.close()
    del stream
    assert eventually(lambda: counter.notes() == ["closed"])


def test_a_stream_that_waits_for_its_consumer_blocks_nobody(spawn: Any) -> None:
    counter = spawn(Counter)
    first, second = counter.up_to(100), counter.up_to(100)
    for i, pair in enumerate(zip(first, second, strict=True)):
        assert pair == (i, i)
        assert counter.echo(i) == i


def test_a_stream_has_one_consumer_which_may_be_an_actor(
    spawn: Any, tmp_path: Path
) -> None:
    @moo.actor
    class Consumer:
        def total(self, producer: Any, n: int) -> int:
            return sum(producer.up_to(n))

    counter, gate = spawn(Counter), tmp_path / "gate"
    assert spawn(Consumer).total(counter, 200) == sum(range(200))
    counter.until.tell(gate)  # so that no item is there
    stream = counter.up_to(3)
    with pytest.raises(TypeError, match="one consumer"):
        pickle.dumps(stream)

    async def main() -> None:
        with pytest.raises(RuntimeError, match="event loop"):
            next(stream)

    asyncio.run(main())
    gate.touch()
    assert list(stream) == [0, 1, 2]
