# SPDX-License-Identifier: MIT
"""Many actors on several hosts: 4 × 50 in one session, on whatever cores there are."""

import time

import numpy as np
import pytest

import mooactor as moo
from tests.clusters import cluster
from tests.host.nodes import Node

psutil = pytest.importorskip("psutil")

HOSTS = "abcd"
EACH = 50
PEERS = 8
LARGE_BYTES = 1 << 30 if psutil.virtual_memory().available > 12 << 30 else 128 << 20
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


def test_two_hundred_actors_of_four_hosts_call_each_other(joined):
    began = time.monotonic()
    handles = populate()
    print(f"spawned in {time.monotonic() - began:.1f} s")
    assert each_calls_others(handles, 0) == []
    print(f"and called in {time.monotonic() - began:.1f} s")
    before = resident(joined)

    for value in range(1, 6):
        assert each_calls_others(handles, value) == []

    grown = {name: size - before[name] for name, size in resident(joined).items()}
    assert all(size < HEADROOM_BYTES for size in grown.values()), grown
    alive = {row["name"]: len(row["actors"]) for row in moo.hosts()}
    assert alive == dict.fromkeys(HOSTS, EACH)


def test_a_large_value_crosses_the_link_of_each_host_once(joined):
    places = [moo.on(Node, host=host) for host in HOSTS]
    nodes = [place.spawn(0) for place in places for _ in range(3)]
    moo.get([node.add.remote(0) for node in nodes])
    array = np.ones(LARGE_BYTES, np.uint8)
    expected = (LARGE_BYTES // 4096, LARGE_BYTES)
    memory = resident(joined)
    before = {host: joined.network.sent(host) for host in joined.network.hosts}

    value = moo.put(array)
    del array
    answers = moo.get([node.total.remote(value) for node in nodes], timeout=240)

    assert answers == [expected] * len(nodes)
    sent = {host: joined.network.sent(host) - before[host] for host in before}
    # four hosts have it now; headers and calls take a little more
    assert sum(sent.values()) < 4.25 * LARGE_BYTES, sent
    grown = {name: size - memory[name] for name, size in resident(joined).items()}
    assert all(size < HEADROOM_BYTES for size in grown.values()), grown
