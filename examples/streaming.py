# SPDX-License-Identifier: MIT
"""Streams: a generator method yields, its caller iterates, a slow caller slows it.

Run it: `python examples/streaming.py`
"""

import asyncio
from collections.abc import AsyncIterator, Iterator

import numpy as np
from numpy.typing import NDArray

import mooactor as moo
from mooactor import actor


@actor
class Sensor:
    """Produces frames, faster than anybody wants them."""

    def __init__(self) -> None:
        self.produced = 0

    def frames(self, count: int) -> Iterator[NDArray[np.float32]]:
        for index in range(count):
            self.produced += 1
            yield np.full((256, 256), index, np.float32)  # crosses in shared memory

    def total(self) -> int:
        return self.produced


@actor
class Clock:
    """An async generator, beside whose waits other calls are served."""

    async def ticks(self, count: int) -> AsyncIterator[int]:
        for tick in range(count):
            await asyncio.sleep(0.01)
            yield tick

    async def ping(self) -> str:
        return "pong"


async def listen(clock: Clock) -> None:
    async for tick in clock.ticks(3):
        print("tick", tick, await clock.ping())


def main() -> None:
    with moo.init():
        sensor = moo.spawn(Sensor)
        means = [float(frame.mean()) for frame in sensor.frames(5)]
        print("means of five frames:", means)

        for index, _frame in enumerate(sensor.frames(1_000_000)):
            if index == 9:
                break  # dropping the iterator ends the producer
        ahead = sensor.total() - 5 - 10
        print("the producer was at most a window ahead:", ahead < 100)

        asyncio.run(listen(moo.spawn(Clock)))


if __name__ == "__main__":
    main()
