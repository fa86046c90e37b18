# SPDX-License-Identifier: MIT
"""Four processes on two hosts send each other random data for a long time.

For MOOACTOR_SOAK_SECONDS, 10 by default; 600 is the real one. ``pytest -s`` shows
the figures.
"""

from __future__ import annotations

import os
import random
import time
from typing import Any, NamedTuple

import pytest

from tests.conftest import eventually
from tests.marks import soak
from tests.networks import why_not
from tests.transports import soaker
from tests.transports.pairs import Hosts, why_no_fabric
from tests.transports.worker import Worker

MB = 1 << 20
SECONDS = float(os.environ.get("MOOACTOR_SOAK_SECONDS", "10"))
#: In bytes: what a process may keep beyond an earlier peak, which is a matter of
#: chance: private memory, and one slab, which is as large as all before it.
SLACK, SLAB = 8 * MB, 128 * MB


class State(NamedTuple):
    """Of a process at rest."""

    private: int  # bytes
    shared: int  # bytes of address space for shared memory
    files: int


def state(worker: Worker) -> State:
    """What a process has when nothing is held or under way any more."""
    worker.call("rest")
    assert eventually(worker.settled), worker.call("statistics")
    files = sum(worker.call("files").values())
    reserved = worker.call("statistics")["reserved"]
    return State(worker.call("private"), reserved, files)


class Post:
    """Hands round what the processes make for each other."""

    def __init__(self, workers: list[Worker], seed: int) -> None:
        self._workers = workers
        self._chance = random.Random(seed)
        self._waiting: list[list[Any]] = [[] for _ in workers]

    def round(self, *, first: bool = False, last: bool = False) -> None:
        """All take in what is for them, and make something new, at the same time.

        In the first round everybody meets all others, in the last nothing is made.
        """
        orders = []
        for at, worker in enumerate(self._workers):
            others = [n for n in range(len(self._workers)) if n != at]
            some = others if first else self._chance.choices(others, k=4)
            orders.append([] if last else some)
            ids = [self._workers[to].id for to in orders[-1]]
            parcels, self._waiting[at] = self._waiting[at], []
            worker.tell("step", parcels, ids)
        for worker, order in zip(self._workers, orders, strict=True):
            for to, parcel in zip(order, worker.answer(), strict=True):
                self._waiting[to].append(parcel)


def pass_round(workers: list[Worker], seconds: float) -> list[list[State]]:
    """The states of all, after every tenth of the time and at least two seconds."""
    post, states = Post(workers, seed=5), []
    post.round(first=True)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        part = time.monotonic() + max(seconds / 10, 2)
        while time.monotonic() < part:
            post.round()
        post.round(last=True)
        for worker in workers:  # who lends to whom ends with all of them
            worker.call("rest")
        states.append([state(worker) for worker in workers])
    return states


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 400)
@pytest.mark.parametrize("network", ["tcp", "ofi"])
def test_nothing_is_lost_or_wrong_and_memory_is_flat(hosts: Hosts, network: str):
    if network == "ofi" and (why := why_no_fabric()):
        pytest.skip(why)
    run_for_long(hosts, network)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 400)
@pytest.mark.parametrize("permille", [soak(10), 50])
def test_nor_where_packets_get_lost(hosts: Hosts, permille: int):
    if hosts.cable is None:
        pytest.skip(why_not())
    if why := hosts.cable.why_none_lost():
        pytest.skip(why)
    with hosts.cable.losing(permille):
        run_for_long(hosts, "tcp")
        assert min(hosts.cable.lost(host) for host in "ab") > 10


def run_for_long(hosts: Hosts, network: str) -> None:
    """Pass data round, and look at what arrived and what is left."""
    workers = []
    for host in "aabb":
        process = hosts.process(host, environment={"MOOACTOR_HOST_ID": host})
        name = soaker.__name__
        workers.append(hosts.start(process, "shm", network, module=name))
    states = pass_round(workers, SECONDS)
    counts = [worker.call("counts") for worker in workers]
    report(network, workers, counts, states)
    total = sum(counts[1:], counts[0])
    assert total["arrived"] + total["cancelled"] + total["discarded"] == total["sent"]
    assert total["arrived"] > 100
    for n in range(len(workers)):
        early = [at[n] for at in states[: len(states) // 2]]
        last = states[-1][n]
        assert last.files <= max(one.files for one in early)
        assert last.shared <= max(one.shared for one in early) + SLAB
        assert last.private <= max(one.private for one in early) + SLACK


def report(
    network: str, workers: list[Worker], counts: list[Any], states: list[list[State]]
) -> None:
    total = sum(counts[1:], counts[0])
    print(f"\n{network}, {SECONDS:.0f} s: {dict(total)}")
    for n, worker in enumerate(workers):
        first, last = states[0][n], states[-1][n]
        sums = worker.call("statistics")
        print(
            f"  process {n}: fetched {sums[f'fetched_{network}'] / MB:.0f} MB over "
            f"the network, private {first.private / MB:.1f} then "
            f"{last.private / MB:.1f} MB, shared {first.shared / MB:.0f} then "
            f"{last.shared / MB:.0f} MB, files {first.files} then {last.files}"
        )
