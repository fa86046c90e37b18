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

        # small chunks, each to whoever is free: no worker waits for a slower one
        began = time.perf_counter()
        print("by chunks:", count_by_chunks(pool))
        print("chunks per worker:", pool.call(Worker.done).get())
        print(f"{CHUNKS} chunks took {time.perf_counter() - began:.2f} s")


def count_by_chunks(pool: moo.Group[Worker]) -> int:
    size = SAMPLES // CHUNKS
    chunks = [(i * size, (i + 1) * size) for i in range(CHUNKS)]
    busy = {worker.primes.remote(*chunks.pop()): worker for worker in pool}
    total = 0
    while busy:
        (ref, *_), _ = moo.wait(list(busy))
        worker = busy.pop(ref)
        total += ref.get()
        if chunks:
            busy[worker.primes.remote(*chunks.pop())] = worker
    return total


if __name__ == "__main__":
    main()
