# SPDX-License-Identifier: MIT
"""A broker without a node: what a bug in it would cost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mooactor.cluster.broker import Broker
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
