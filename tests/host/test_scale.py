# SPDX-License-Identifier: MIT
"""Many actors on several hosts: 4 × 50 in one session, on whatever cores there are."""

import pytest

import mooactor as moo
from tests.clusters import cluster
from tests.host.where import Node

psutil = pytest.importorskip("psutil")

HOSTS = "abcd"
EACH = 50
PEERS = 8
HEADROOM_BYTES = 24 << 20  # what a program may grow by that does nothing new
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def four(as_driver):
    """A session on four hosts, and its driver on a fifth one."""
    with cluster(HOSTS, driver="z") as made:
        with moo.init(as_driver(made, "z").address, local=False):
            yield made


def populate():
    """The actors, in the order of their numbers; host i has those from i * EACH. One
    host after the other: all of them share the cores of this machine."""
    nodes = []
    for host in HOSTS:
        numbers = range(len(nodes), len(nodes) + EACH)
        there = [moo.on(Node, host=host).spawn(number) for number in numbers]
        assert moo.get([node.add.remote(0) for node in there], timeout=120) == [
            *numbers
        ]
        nodes += there
    return nodes


def each_calls_others(nodes, value):
    """All at once, each of them some that are on other hosts."""
    asked, expected = [], []
    for number, node in enumerate(nodes):
        others = [
            (number + EACH * (1 + step % (len(HOSTS) - 1)) + step) % len(nodes)
            for step in range(PEERS)
        ]
        asked.append(node.ask.remote([nodes[other] for other in others], value))
        expected.append([other + value for other in others])
    return moo.get(asked, timeout=120) == expected


def resident(made):
    """Bytes, of the broker and of the hosts' agents."""
    programs = {"broker": made.broker, **made.members}
    return {
        name: psutil.Process(program.pid).memory_info().rss
        for name, program in programs.items()
    }


def has_grown_little(made, before):
    grown = {name: size - before[name] for name, size in resident(made).items()}
    assert all(size < HEADROOM_BYTES for size in grown.values()), grown


def test_two_hundred_actors_of_four_hosts_call_each_other(four):
    nodes = populate()
    assert each_calls_others(nodes, 0)
    before = resident(four)

    assert all(each_calls_others(nodes, value) for value in range(1, 4))

    has_grown_little(four, before)
    alive = {row["name"]: len(row["actors"]) for row in moo.hosts()}
    assert alive == dict.fromkeys(HOSTS, EACH)
