# SPDX-License-Identifier: MIT
"""A broker without a node, and a member without a broker: what a bug would cost."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from mooactor.cluster.broker import Broker
from mooactor.host.brokerlink import BrokerLink
from mooactor.host.membership import Membership
from tests.cluster.rows import row


class Wire:
    """The channel of a member."""

    address = "tcp://127.0.0.1:1"

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def post(self, message: dict[str, Any]) -> None:
        self.told.append(message)


def test_a_bug_in_acting_on_a_message_refuses_its_sender_and_no_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    node: Any = SimpleNamespace(accept=None, statistics=dict)
    lines: list[str] = []
    broker = Broker(node, lines.append, lambda: None)
    first: Any = Wire()
    second: Any = Wire()

    def announce(*arguments: Any) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(broker.registry, "announce", announce)
        broker.handle(first, {"op": "announce", **row("a", "1")})
    assert [one["ev"] for one in first.told] == ["refused"]
    assert "a bug" in first.told[0]["why"]
    assert "RuntimeError: a bug" in capsys.readouterr().err
    assert "a bug" in lines[0]

    broker.handle(second, {"op": "announce", **row("a", "1")})
    assert [one["ev"] for one in second.told] == ["joined"]


def test_who_is_told_that_it_has_joined_can_see_all_members() -> None:
    """The list may come some milliseconds after the word that the broker has it."""
    said: list[str] = []
    channel: Any = SimpleNamespace(peer=b"broker", post=lambda message: None)
    membership: Any = SimpleNamespace(
        node=SimpleNamespace(connect=lambda *_, **__: channel),
        watch=True,
        announcement=dict,
        joined=lambda link, notes: said.append("joined"),
        introduced=lambda *_: None,
        begin=lambda address, rows: said.append("members"),
    )
    link = BrokerLink(membership, "tcp://10.0.0.5:4431")
    for _ in range(2):  # it is lost, and tried again
        link.open()
        link.handle(channel, {"ev": "joined", "members": 2})
        assert said == []
        link.handle(channel, {"ev": "hosts", "rows": [], "more": True})
        assert said == []
        link.handle(channel, {"ev": "hosts", "rows": []})
        assert said == ["members", "joined"]
        link.handle(channel, {"ev": "joined", "members": 2})
        assert said.pop() == "joined" and said.pop() == "joined"
        said.clear()
        link._channel = None


def test_of_two_ways_to_one_broker_the_one_that_is_kept_has_told_all_members() -> None:
    """Whatever comes in between: their words and lists come in any order."""
    for order in set(itertools.permutations(["a", "a", "b", "b"])):
        opened: dict[str, Any] = {}
        channels: dict[str, Any] = {}
        joined: list[str] = []

        def connect(address: str, listener: Any, **_: Any) -> Any:
            channel = SimpleNamespace(peer=b"broker", post=lambda _: None)
            channel.close = lambda why: channels.pop(address)
            opened[address], channels[address] = listener, channel
            return channel

        node: Any = SimpleNamespace(connect=connect)
        membership = Membership(
            node,
            ["a", "b"],
            dict,
            lambda delay, function: None,
            on_joined=lambda address, _: joined.append(address),
        )
        news = {
            each: iter([{"ev": "joined", "members": 0}, {"ev": "hosts", "rows": []}])
            for each in "ab"
        }
        for each in order:
            assert each in channels  # neither is closed before both have told all
            opened[each].handle(channels[each], next(news[each]))
        assert sorted(joined) == ["a", "b"]
        assert membership.brokers() == ["a"] == list(channels)
