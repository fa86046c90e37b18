# SPDX-License-Identifier: MIT
"""Random data among four processes, of two transports: nothing wrong, all freed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from tests.conftest import eventually
from tests.marks import slow
from tests.tensors.worker import Worker

LEAST = 20
# Which each process may use: the second and third are forced apart from the rest.
MIXES = {
    "tcp": ["tcp"] * 4,
    "mixed": ["shm,tcp", "tcp", "tcp", "shm,tcp"],
    "ofi": ["ofi"] * 4,
    "all": ["shm,ofi,tcp", "ofi,tcp", "ofi", "shm,ofi,tcp"],
    "shm": ["shm"] * 4,
}


def run(workers: list[Worker], seconds: float, seed: int) -> int:
    """Pass data round for so long, and in any case for `LEAST` transfers; returns how
    many there were."""
    chance = random.Random(seed)
    under_way: list[tuple[int, tuple[bytes, str] | None]] = [(n, None) for n in (0, 1)]
    end, count = time.monotonic() + seconds, 0
    while under_way:
        at, received = under_way.pop(0)
        to = chance.choice([n for n in range(len(workers)) if n != at])
        nbytes = int(2 ** chance.uniform(0, 22))
        sent = workers[at].call("exchange", received, workers[to].id, nbytes)
        count += received is not None
        if time.monotonic() < end or count < LEAST:
            under_way.append((to, sent))
        else:
            workers[to].call("discard", sent[0])
    return count


@pytest.mark.slow
@pytest.mark.parametrize("mix", [mix if mix == "mixed" else slow(mix) for mix in MIXES])
def test_what_is_passed_round_stays_what_it_was(
    new_worker: Callable[..., Worker], mix: str, request: pytest.FixtureRequest
) -> None:
    if any("ofi" in transports for transports in MIXES[mix]):
        request.getfixturevalue("fabric")
    workers = [new_worker(transports) for transports in MIXES[mix]]
    run(workers, 2, seed=1)
    for worker in workers:
        assert eventually(lambda w=worker: w.call("statistics")["used"] == 0)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mix", MIXES)
def test_so_it_does_for_minutes_in_the_same_memory(
    new_worker: Callable[..., Worker], mix: str, request: pytest.FixtureRequest
) -> None:
    if any("ofi" in transports for transports in MIXES[mix]):
        request.getfixturevalue("fabric")
    workers = [new_worker(transports) for transports in MIXES[mix]]
    run(workers, 5, seed=2)
    before = [worker.call("statistics")["reserved"] for worker in workers]
    assert run(workers, 60, seed=3) > 100
    after = [worker.call("statistics")["reserved"] for worker in workers]
    assert after == before
