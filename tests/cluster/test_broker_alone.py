# SPDX-License-Identifier: MIT
"""Brokers, stand-bys and members of which one side is the test's: what a bug would
cost, who is silent for too long, and what comes in any order."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mooactor.cluster import broker as broker_module
from mooactor.cluster.broker import Broker, Standby
from mooactor.control.channel import Channel
from mooactor.control.clock import REAL
from mooactor.control.messages import Message, encode
from mooactor.control.node import Node
from mooactor.host import membership
from mooactor.host.members import (
    FROM_BROKER,
    Brokers,
    Joined,
    Members,
    Refusal,
    StandBy,
)
from mooactor.host.membership import Membership
from tests.cluster.clusters import Cluster
from tests.cluster.rows import announce, row


class Wire:
    """A channel to a member, to a broker, or to this node itself."""

    address = "tcp://127.0.0.1:1"
    is_open = True

    def __init__(self, peer: bytes = b"") -> None:
        self.peer = peer
        self.posted: list[Message] = []
        self.closed = ""

    def post(self, message: Message) -> None:
        self.posted.append(message)

    def close(self, why: str) -> None:
        self.closed = why


def test_a_bug_in_acting_on_a_message_refuses_its_sender_and_no_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    node: Any = SimpleNamespace(accept=None, statistics=dict, clock=REAL)
    lines: list[str] = []
    broker = Broker(node, lines.append, lambda: None)
    first: Any = Wire()
    second: Any = Wire()

    def fail(*arguments: Any) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(broker.registry, "announce", fail)
        broker.handle(first, encode(announce("a", "1")))
    (refusal,) = first.posted
    assert isinstance(refusal, Refusal) and "a bug" in refusal.why
    assert "RuntimeError: a bug" in capsys.readouterr().err
    assert "a bug" in lines[0]

    broker.handle(second, encode(announce("a", "1")))
    assert list(map(type, second.posted)) == [Joined]


# -- silence -------------------------------------------------------------------


class Silent:
    """A member that says what it is once, and nothing of its own accord after that."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        node = Node(cluster.key.secret)
        cluster.nodes.append(node)
        self.heard: list[type[Message]] = []
        self.closed: list[str] = []
        channel = node.connect(cluster.nodes[0].address, self)
        channel.post(announce(name, node.id.hex(), address=node.address))

    def handle(self, channel: Channel, data: bytes) -> None:
        self.heard.append(type(FROM_BROKER.decode(data)))

    def channel_closed(self, channel: Channel, why: str) -> None:
        self.closed.append(why)


@pytest.fixture
def broker(cluster: Cluster) -> Broker:
    """In this process."""
    node = Node(cluster.key.secret, beat_s=0)
    cluster.nodes.append(node)
    return Broker(node, lambda line: None, lambda: None)


def test_a_silent_member_is_gone_and_told_so_unless_the_broker_was_stopped_itself(
    cluster: Cluster, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = Silent(cluster, "a")
    assert cluster.until(lambda: member.heard == [Joined])
    broker.look()
    assert len(broker.registry) == 1
    monkeypatch.setattr(broker_module, "MEMBER_SILENCE_S", 0.0)
    broker._looked -= 2.0  # it has not looked for so long
    for _ in range(2):
        broker.look()
        assert len(broker.registry) == 1
    broker._lenient_until = broker._sweep_at = 0.0
    broker.look()
    assert len(broker.registry) == 0
    assert cluster.until(lambda: member.closed)
    assert "it has said nothing for 0." in member.closed[0]
    assert member.heard == [Joined]


def test_a_client_that_has_vanished_is_dropped_after_a_while(
    cluster: Cluster, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = Silent(cluster, "a")
    assert cluster.until(lambda: member.heard == [Joined])
    client = Silent(cluster, "a")  # whose name is taken
    assert cluster.until(lambda: client.heard == [Refusal])
    broker._sweep()
    monkeypatch.setattr(broker_module, "_CLIENT_SILENCE_S", -1.0)
    broker._sweep()
    assert cluster.until(lambda: client.closed)
    assert member.closed == [] and len(broker.registry) == 1


# -- the stand-by ----------------------------------------------------------------


def test_a_stand_by_says_once_what_is_with_the_first_broker_and_stays_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channels = [Wire(b"first"), *(Wire() for _ in range(2))]
    monkeypatch.setattr(membership, "connect", lambda *_: channels.pop(0))
    timers: list[Callable[[], None]] = []
    said: list[str] = []
    own, address = "tcp://10.0.0.2:4431", "tcp://10.0.0.1:4431"
    node: Any = SimpleNamespace(id=b"second", address=own)
    later: Any = lambda delay, action: timers.append(action)  # noqa: E731
    standby = Standby(node, address, later, said.append, lambda: said.append("stop"))
    first: Any = standby._channel
    assert first.posted == [StandBy(own)]
    for _ in range(2):
        standby.handle(first, encode(Brokers([own])))
    standby.channel_closed(first, "it is gone")
    for _ in range(2):
        timers.pop()()
        standby.channel_closed(standby._channel, "nothing listens there")
    joined, gone, nothing = said
    assert joined == f"has joined the first broker at {address}"
    assert gone == f"the first broker at {address} is gone: it is gone"
    assert nothing == (
        f"is no stand-by of {address} yet (nothing listens there): is `mooactor broker`"
        " running there, with the same key?"
    )


# -- members -----------------------------------------------------------------------


def test_of_two_ways_to_one_broker_the_one_that_is_kept_has_told_all_members() -> None:
    """A broker answers in order: the list comes before the word that it is joined."""
    for order in set(itertools.permutations(["a", "a", "b", "b"])):
        opened: dict[str, Any] = {}
        channels: dict[str, Any] = {}
        joined: list[str] = []

        def connect(address: str, listener: Any, **_: Any) -> Any:
            channel = SimpleNamespace(peer=b"broker", post=lambda _: None)
            channel.close = lambda why: channels.pop(address)
            opened[address], channels[address] = listener, channel
            return channel

        node: Any = SimpleNamespace(connect=connect, clock=REAL)
        membership = Membership(
            node,
            ["a", "b"],
            lambda: row("a"),
            lambda delay, function: None,
            on_joined=lambda address, _: joined.append(address),
        )
        news = {each: iter([Members([]), Joined([], 0, [])]) for each in "ab"}
        for each in order:
            assert each in channels  # neither is closed before both have told all
            opened[each].handle(channels[each], encode(next(news[each])))
        assert sorted(joined) == ["a", "b"]
        assert membership.brokers() == ["a"] == list(channels)
