# SPDX-License-Identifier: MIT
"""Many actors on several hosts: 4 × 50 in one session, on whatever cores there are."""

import itertools
import os
import time

import numpy as np
import pytest

import mooactor as moo
from tests.clusters import cluster
from tests.conftest import at_best
from tests.host.nodes import Node
from tests.processes import Process

psutil = pytest.importorskip("psutil")

HOSTS = "abcd"
EACH = 50
PEERS = 8
SIZES = [
    128 << 20,
    pytest.param(
        1 << 30,
        marks=pytest.mark.skipif(
            psutil.virtual_memory().available < 12 << 30,
            reason="five hosts' copies of 1 GiB need 12 GiB of free memory",
        ),
    ),
]
HEADROOM_BYTES = 24 << 20  # what a program may grow by that does nothing new
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def four():
    """Four hosts, and a fifth one for the driver: its name is "z"."""
    with cluster(HOSTS, driver="z") as made:
        yield made


@pytest.fixture
def joined(four, as_driver):
    with moo.init(as_driver(four, "z").address, local=False):
        yield four


def populate():
    """Handles by host; host i has the numbers i * EACH to (i + 1) * EACH - 1. One host
    after the other: all of them share the cores of this machine."""
    handles = {}
    for index, host in enumerate(HOSTS):
        numbers = range(index * EACH, (index + 1) * EACH)
        place = moo.on(Node, host=host)
        handles[host] = [place.spawn(number) for number in numbers]
        started = [handle.add.remote(0) for handle in handles[host]]
        assert moo.get(started, timeout=120) == list(numbers)
    return handles


def others_of(handles, host, index):
    """Some on other hosts, each time other ones: (number, handle)."""
    elsewhere = [name for name in HOSTS if name != host]
    chosen = []
    for step in range(PEERS):
        name = elsewhere[step % len(elsewhere)]
        place = (index * PEERS + step) % EACH
        chosen.append((HOSTS.index(name) * EACH + place, handles[name][place]))
    return chosen


def each_calls_others(handles, value):
    """The actors of one host after the other, each host's at once; returns those
    answers that are wrong."""
    return [wrong for host in HOSTS for wrong in host_calls(handles, host, value)]


def host_calls(handles, host, value):
    started = []
    for index, handle in enumerate(handles[host]):
        numbers, others = zip(*others_of(handles, host, index), strict=True)
        expected = [number + value for number in numbers]
        started.append((expected, handle.ask.remote(list(others), value)))
    answers = [(expected, ref.get(timeout=120)) for expected, ref in started]
    return [pair for pair in answers if pair[0] != pair[1]]


def programs(made):
    """The broker and the agents of the hosts."""
    return {"broker": made.broker, **made.members}


def resident(made):
    return {
        name: psutil.Process(program.pid).memory_info().rss
        for name, program in programs(made).items()
    }


def growth(made, before):
    return {name: size - before[name] for name, size in resident(made).items()}


def others_s():
    """For how long other programs have had this machine's cores, each on average."""
    times = psutil.cpu_times()
    guests = times.guest + times.guest_nice  # which are among the others already
    busy = sum(times) - times.idle - times.iowait - guests
    ours = sum(process.used_s() for process in Process.of(os.getpid()).family())
    return (busy - ours) / os.cpu_count()


def test_two_hundred_actors_of_four_hosts_start_soon_and_call_each_other(joined):
    handles = {}

    def seconds():
        for handle in itertools.chain(*handles.values()):
            moo.kill(handle)
        began = time.monotonic() - others_s()
        handles.update(populate())
        return time.monotonic() - others_s() - began

    assert at_best(seconds, 10.0, tries=3)  # 4 s on two quiet cores
    assert each_calls_others(handles, 0) == []
    before = resident(joined)

    for value in range(1, 6):
        assert each_calls_others(handles, value) == []

    grown = growth(joined, before)
    assert all(size < HEADROOM_BYTES for size in grown.values()), grown
    alive = {row["name"]: len(row["actors"]) for row in moo.hosts()}
    assert alive == dict.fromkeys(HOSTS, EACH)


def counted(network):
    """Bytes that have come over each host's cable, and bytes that have gone."""
    hosts = network.hosts
    return [{h: count(h) for h in hosts} for count in (network.received, network.sent)]


@pytest.mark.parametrize("nbytes", SIZES)
def test_a_large_value_reaches_each_host_over_its_cable_once(joined, nbytes):
    places = [moo.on(Node, host=host) for host in HOSTS]
    nodes = [place.spawn(0) for place in places for _ in range(3)]
    moo.get([node.add.remote(0) for node in nodes])
    array = np.ones(nbytes, np.uint8)
    expected = (nbytes // 4096, nbytes)
    memory, before = resident(joined), counted(joined.network)

    value = moo.put(array)
    del array
    answers = moo.get([node.total.remote(value) for node in nodes], timeout=240)

    assert answers == [expected] * len(nodes)
    came, gone = (
        {host: (now[host] - then[host]) / nbytes for host in now}
        for now, then in zip(counted(joined.network), before)
    )
    # headers, acknowledgements and calls take a little more
    assert came.pop("z") < 0.1
    assert all(1 <= times < 1.1 for times in came.values()), came
    # a binary tree: the driver serves the first two hosts, and these the others
    assert all(times < 2.2 for times in gone.values()), gone
    grown = growth(joined, memory)
    assert all(size < HEADROOM_BYTES for size in grown.values()), grown
