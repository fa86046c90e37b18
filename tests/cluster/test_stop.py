# SPDX-License-Identifier: MIT
"""``mooactor stop``: real brokers, and agents of the test."""

from __future__ import annotations

import json

import pytest

from tests.cluster.clusters import Agent, Cluster
from tests.cluster.test_asking import ask


@pytest.fixture
def address(cluster: Cluster) -> str:
    return cluster.broker()[1]


@pytest.fixture
def home(cluster: Cluster, address: str) -> Agent:
    """The agent of a driver, which leaves when it is told to."""
    member = cluster.member("laptop", address, kind="home")
    assert cluster.until(lambda: member.joined)
    agent = Agent(member)
    agent.on_stop = lambda: cluster.loop.later(0.01, lambda: cluster.leave(member))
    return agent


def test_stop_ends_sessions_then_hosts_then_the_broker(
    cluster: Cluster, home: Agent, address: str
) -> None:
    host = Agent(cluster.member("b", address))
    assert cluster.until(lambda: host.member.joined)
    order: list[str] = []
    for agent in (home, host):

        def stop(agent: Agent = agent) -> None:
            order.append(agent.member.row.name)
            cluster.loop.later(0.01, lambda: cluster.leave(agent.member))

        agent.on_stop = stop
    lines = ask(cluster, address, "stop")
    assert lines == ["stopped 1 session, 1 host and the broker\n"]
    assert order == ["laptop", "b"]
    assert cluster.until(lambda: cluster.commands[0].ended)
    assert cluster.commands[0].wait() == 0


def test_stop_by_the_stand_by_ends_the_first_broker_too(
    cluster: Cluster, address: str
) -> None:
    first = cluster.commands[0]
    _, other = cluster.broker("--standby-of", address)
    (line,) = ask(cluster, other, "stop", "--json")
    assert json.loads(line) == {"sessions": 0, "hosts": 0}
    assert cluster.until(lambda: first.ended) and first.wait() == 0


@pytest.mark.slow
def test_stop_leaves_the_broker_to_a_host_that_it_does_not_reach(
    cluster: Cluster, address: str, home: Agent
) -> None:
    lost = cluster.member("b", address)
    lost.row.address = "tcp://127.0.0.1:1"  # where nobody listens
    lost.membership.changed()
    shown = ""
    while "tcp://127.0.0.1:1" not in shown:
        shown = "".join(ask(cluster, address, "status", "--json"))
    (line,) = ask(cluster, address, "stop", code=1)
    assert "stopped 1 session and 0 hosts, but not host b at tcp://127.0.0.1:1" in line
    assert "The broker still runs: try again" in line
    assert not cluster.commands[0].ended
    assert lost.membership.brokers() == [address]
