# SPDX-License-Identifier: MIT
"""``mooactor stop``: real brokers, and agents of the test."""

from __future__ import annotations

import json
import signal
import sys

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


@pytest.mark.slow
def test_stop_ends_a_real_host(cluster: Cluster, address: str) -> None:
    key = ("--key-file", cluster.key.source)
    host = cluster.command("host", "--join", address, "--name", "b", *key)
    assert cluster.until(lambda: host.out), host.text()
    said = ask(cluster, address, "stop")
    assert said == ["stopped 0 sessions, 1 host and the broker\n"]
    assert host.wait() == cluster.commands[0].wait() == 0


PROGRAM = """
import mooactor as moo
from mooactor.process import deaths
deaths._GRACE_S = 60.0  # news of the actor's death does not come before the end
class Waits:
    def forever(self):
        print("waits", flush=True)
        while True: pass
moo.init()
moo.actor(Waits)
handle = moo.spawn(Waits)
try:
    handle.forever()
except moo.ActorUnavailable as error:
    print("ended:", error, flush=True)
"""


@pytest.mark.slow
def test_a_call_that_stop_cuts_short_says_so(cluster: Cluster, address: str) -> None:
    program = cluster.command(
        words=[sys.executable, "-c", PROGRAM],
        MOOACTOR_ADDRESS=address,
        MOOACTOR_KEY_FILE=cluster.key.source,
    )
    assert cluster.until(lambda: any("waits" in line for line in program.out))
    (line,) = ask(cluster, address, "stop")
    assert line == "stopped 1 session, 0 hosts and the broker\n"
    assert program.wait() == 0
    why = "because mooactor stop ended it; moo.init() starts another one"
    assert program.out[-1] == f"ended: the session has ended, {why}\n"


def test_stop_by_the_stand_by_ends_the_first_broker_too(
    cluster: Cluster, address: str
) -> None:
    first = cluster.commands[0]
    _, other = cluster.broker("--standby-of", address)
    (line,) = ask(cluster, other, "stop", "--json")
    assert json.loads(line) == {"sessions": 0, "hosts": 0, "brokers": 2}
    assert cluster.until(lambda: first.ended) and first.wait() == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_stop_says_what_is_with_a_first_broker_that_does_not_answer(
    cluster: Cluster, address: str, number: int
) -> None:
    first = cluster.commands[0]
    a = cluster.member("a", address)
    _, other = cluster.broker("--standby-of", address)
    assert cluster.until(lambda: other in a.membership.brokers())
    cluster.leave(a)
    first.process.send_signal(number)
    both = f"{other},{address}"
    if number == signal.SIGKILL:
        first.wait()
        (line,) = ask(cluster, both, "stop")
        assert line.startswith("stopped 0 sessions, 0 hosts and the broker; nothing ")
        assert address in line
    else:
        (line,) = ask(cluster, both, "stop", code=1)
        assert f"but not the broker at {address} (no answer" in line
        assert "end it there with SIGTERM" in line


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
