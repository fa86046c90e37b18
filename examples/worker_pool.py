# SPDX-License-Identifier: MIT
"""A pool of workers: one call to all, a share for each, and whoever is free first.

Run it: `python examples/worker_pool.py`
"""

import math
import time

import mooactor as moo
from mooactor import actor, method

WORKERS = 4
CHUNKS = 32
SAMPLES = 20_000


@actor
class Worker:
    """Counts primes; one call at a time, so its state needs no lock."""

    def __init__(self) -> None:
        self.chunks_done = 0

    @method
    def primes(self, first: int, last: int) -> int:
        self.chunks_done += 1
        return sum(map(is_prime, range(first, last)))

    @method
    def chunk(self, first: int) -> int:
        return self.primes(first, first + SAMPLES // CHUNKS)

    def done(self) -> int:
        return self.chunks_done


def is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1))


def main() -> None:
    with moo.init():
        pool = moo.on(Worker).group(WORKERS)

        # the same call to each worker; results come in rank order
        print("ready:", pool.call(Worker.primes, 0, 10).get())

        # one share for each worker
        quarter = SAMPLES // WORKERS
        shares = [(i * quarter, (i + 1) * quarter) for i in range(WORKERS)]
        print("by shares:", sum(pool.call_each(Worker.primes, shares).get()))

        # small chunks, each to the worker that has fewest: none waits for a slower one
        began = time.perf_counter()
        print("by chunks:", count_by_chunks(pool))
        print("chunks per worker:", pool.call(Worker.done).get())
        print(f"{CHUNKS} chunks took {time.perf_counter() - began:.2f} s")


def count_by_chunks(pool: moo.Group[Worker]) -> int:
    # retries: should a worker die, another one counts its chunks
    chunks = range(0, SAMPLES, SAMPLES // CHUNKS)
    return sum(pool.map(Worker.chunk, chunks, ordered=False, retries=1))


if __name__ == "__main__":
    main()
