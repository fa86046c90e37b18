# SPDX-License-Identifier: MIT
"""Messages reach an actor's process before its class is imported."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from mooactor.control.lifeline import Lifeline
from mooactor.process.agent_client import AgentClient
from mooactor.process.current import current_runtime
from tests.conftest import eventually
from tests.gates import wait_at
from tests.process.hosts import Hosts


def is_connected(handle: Any) -> bool:
    ways = current_runtime().messenger.ways
    way = None if ways is None else ways.known(handle._where()[1].process_id)
    return way is not None and way.up


class Slow:
    """Its arguments can be unpickled once there is a file of that name."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return wait_at, (self.path,)


class Asking:
    """While it is unpickled, it asks the agent until a call has come."""

    def __reduce__(self) -> tuple[Any, ...]:
        return ask_until_called, ()


def ask_until_called() -> None:
    while current_runtime().messenger.holds(1):  # until one message was dispatched
        with contextlib.suppress(moo.ActorUnavailable):
            moo.lookup("nobody")


@moo.actor
class Receiver:
    def __init__(self, *args: Any) -> None:
        self.seen: list[int] = []

    def take(self, number: int) -> int:
        self.seen.append(number)
        return number

    def all_seen(self) -> list[int]:
        return self.seen


def test_a_connection_stands_while_the_class_is_imported(
    two: Hosts, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    guest = two.start("b", Receiver, Slow(go))
    refs = [guest.take.remote(number) for number in range(100)]
    assert eventually(lambda: is_connected(guest))
    assert not any(ref.done() for ref in refs)
    go.touch()
    assert moo.get(refs, timeout=20) == list(range(100))
    assert guest.all_seen() == list(range(100))


@pytest.mark.usefixtures("session")
def test_calls_wait_for_a_class_whose_import_waits_for_the_agent() -> None:
    """The thread that imports reads the inbox while it waits."""
    receiver = moo.spawn(Receiver, Asking())
    refs = [receiver.take.remote(number) for number in range(100)]
    receiver.take.tell(100)
    assert moo.get(refs, timeout=20) == list(range(100))
    assert receiver.all_seen() == list(range(101))
    moo.kill(receiver)


def test_a_stop_that_comes_before_the_class_counts() -> None:
    ours, theirs = socket.socketpair()
    agent, line = Lifeline(ours), Lifeline(theirs)
    client = AgentClient(line, lambda future, timeout: True, lambda: None)
    agent.send({"ev": "stop"})
    client.read()
    stops: list[int] = []
    client.when_asked_to_stop(lambda: stops.append(1))
    assert stops == [1]
    agent.close()
    client.close()
