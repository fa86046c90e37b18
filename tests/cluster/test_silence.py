# SPDX-License-Identifier: MIT
"""Members whose own loop has stopped, while their connection lives on."""

from __future__ import annotations

import time
from typing import Any

import pytest

from mooactor.cluster import broker as broker_module
from mooactor.cluster.broker import Broker
from mooactor.cluster.registry import Registry
from mooactor.control.channel import Channel
from mooactor.control.node import Node
from tests.cluster.clusters import Cluster
from tests.cluster.rows import row

pytestmark = pytest.mark.slow


class Silent:
    """A member that says what it is once, and nothing of its own accord after that."""

    def __init__(self, cluster: Cluster, address: str, name: str) -> None:
        node = Node(cluster.key.secret)
        cluster.nodes.append(node)
        self.heard: list[str] = []
        self.row = row(name, node.id.hex(), address=node.address)
        self.closed: list[str] = []
        node.connect(address, self).post({"op": "announce", **self.row})

    def handle(self, channel: Channel, message: dict[str, Any]) -> None:
        self.heard.append(message["ev"])

    def channel_closed(self, channel: Channel, why: str) -> None:
        self.closed.append(why)


@pytest.fixture
def broker(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """In this process, and less patient than others."""
    node = Node(cluster.key.secret, beat_s=0)
    cluster.nodes.append(node)
    broker = Broker(node, lambda line: None, lambda: None)
    broker.registry = Registry(broker.registry._post, expiry_s=0.2)
    return broker


def test_a_silent_member_is_gone_and_told_so(cluster: Cluster, broker: Broker) -> None:
    member = Silent(cluster, cluster.nodes[0].address, "a")
    assert cluster.until(lambda: member.heard == ["joined"])

    def looked() -> bool:
        broker.look()
        return not len(broker.registry)

    assert cluster.until(looked)
    assert cluster.until(lambda: member.closed)
    assert "a has said nothing for 0." in member.closed[0]
    assert member.heard == ["joined"]


def test_a_client_that_has_vanished_is_dropped_after_a_while(
    cluster: Cluster, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = Silent(cluster, cluster.nodes[0].address, "a")
    assert cluster.until(lambda: member.heard == ["joined"])
    client = Silent(cluster, cluster.nodes[0].address, "a")  # whose name is taken
    assert cluster.until(lambda: client.heard == ["refused"])
    broker._sweep()
    monkeypatch.setattr(broker_module, "_CLIENT_SILENCE_S", -1.0)
    broker._sweep()
    assert cluster.until(lambda: client.closed)
    assert member.closed == [] and len(broker.registry) == 1


def test_a_broker_that_was_stopped_itself_takes_nobody_for_silent(
    cluster: Cluster, broker: Broker
) -> None:
    member = Silent(cluster, cluster.nodes[0].address, "a")
    assert cluster.until(lambda: member.heard == ["joined"])
    silent = time.monotonic() + 1.0
    assert cluster.until(lambda: time.monotonic() > silent)  # no look in this time
    broker.look()
    broker.look()
    assert len(broker.registry) == 1
