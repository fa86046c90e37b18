# SPDX-License-Identifier: MIT
"""Malformed requests: the agent serves everybody else as before."""

from __future__ import annotations

import contextlib
import math
import os
import random
import socket
from collections.abc import Iterator
from typing import Any

import pytest

import mooactor as moo
from mooactor.control.messages import encode
from mooactor.process import protocol
from mooactor.process.current import current_runtime
from mooactor.process.environment import Place
from mooactor.process.objects.future import Future
from mooactor.process.protocol import ListActors
from mooactor.tensors.network import Network
from tests.actors.counter import Counter
from tests.conftest import eventually, leaked, resources

SEED = int(os.environ.get("MOOACTOR_TEST_SEED", "8"))


def send(message: dict[str, Any]) -> None:
    """Over this process's lifeline."""
    current_runtime().agent._lifeline.send(encode(message))


class Bystander:
    """An actor that must not notice anything."""

    def __init__(self) -> None:
        self.actor = moo.on(Counter, name="bystander").spawn()
        self._total = 0

    def is_well(self) -> bool:
        """It lives, counts on, and is found by its name."""
        self._total += 1
        found = moo.lookup("bystander", timeout=20) == self.actor
        return found and self.actor.add.options(timeout=20)() == self._total


@pytest.fixture(scope="module")
def bystander() -> Iterator[Bystander]:
    """In a session that is left as it was found."""
    before = resources()
    with moo.init(logs=False):
        made = Bystander()
        assert made.is_well()
        yield made
    assert not leaked(before)


@pytest.fixture(autouse=True)
def _ends_all_others(bystander: Bystander) -> Iterator[None]:
    yield
    for actor in moo.actors():
        if actor.name != "bystander":
            with contextlib.suppress(moo.ActorUnavailable):  # it is just ending
                moo.kill(actor.handle)


def refusal_of(message: dict[str, Any], rid: int = 1 << 40) -> str:
    """The reason with which the agent refuses it."""
    agent, future = current_runtime().agent, Future()
    agent._requests[rid] = future
    send({**message, "rid": rid})
    assert agent.wait(future, 20.0)
    reply, _ = future.unwrap()
    return str(reply.failed)


def test_a_request_that_makes_no_sense_is_answered_with_the_reason(
    bystander: Bystander,
) -> None:
    spawn = {"type": "Spawn", "id": 5, "label": "", "handle": b"", "payload": b""}
    for message, reason in (
        ({"type": "Dance"}, "'Dance'"),
        ({"type": "LookUp", "name": ["x"], "timeout": 0}, "$.name"),
        ({"type": "LookUp", "name": "x", "timeout": math.nan}, "$.timeout"),
        ({"type": "Segment", "group": "x", "share": 7}, "$.share"),
        ({"type": "Kill", "id": 1, "depth": [[]]}, "unknown field `depth`"),
        (spawn, "5 is no id"),
        ({"type": "Ready"}, "only an actor"),
    ):
        assert reason in refusal_of(message)
    assert bystander.is_well()


def test_a_malformed_spawn_without_a_number_is_told_as_a_death(
    bystander: Bystander,
) -> None:
    heard: list[protocol.Died] = []
    agent = current_runtime().agent
    agent.on(protocol.Died, heard.append)
    try:
        send({"type": "Spawn", "id": 7 << 16, "label": 5})
        assert eventually(lambda: heard)
    finally:
        agent.on(protocol.Died, current_runtime().deaths.on_notice)
    assert heard[0].id == 7 << 16 and "$.label" in heard[0].record.note
    assert bystander.is_well()


def test_only_the_driver_ends_or_configures_the_session(bystander: Bystander) -> None:
    @moo.actor
    class Mutinies:
        def ask(self, configure: bool) -> str:
            place, network = Place(b"/", []), Network()
            request: protocol.Request = protocol.Shutdown()
            if configure:
                about = (b"k", 1, "m", place, b"python", [], [], network)
                request = protocol.Configure(b"/", *about)
            try:
                current_runtime().agent.ask(request, 20.0)
            except moo.InternalError as error:
                return str(error)
            return "done"

    mutinies = moo.spawn(Mutinies)
    for configure in (False, True):
        assert "only the program that started" in mutinies.ask(configure)
    assert bystander.is_well()


@moo.actor
class Floods:
    """Writes to its own lifeline what no runtime would."""

    def _socket(self) -> socket.socket:
        fd = os.dup(current_runtime().lifeline_fd)
        line = socket.socket(fileno=fd)
        line.settimeout(20.0)  # not blocking: the two share that, too
        return line

    def rubbish(self, seed: int) -> None:
        """Bytes without a head that makes sense."""
        self._socket().sendall(b"\xff" * 5 + random.Random(seed).randbytes(5000))

    def descriptors(self, count: int) -> None:
        """Descriptors that no frame claims."""
        line, fds = self._socket(), [0] * 8
        for _ in range(count):
            body = encode(ListActors())
            head = len(body).to_bytes(4, "little") + b"\0"
            socket.send_fds(line, [head + body], fds)

    def ping(self) -> str:
        return "pong"


def test_a_line_that_makes_no_sense_ends_only_its_own_process(
    bystander: Bystander,
) -> None:
    for spoil in (lambda h: h.rubbish(SEED), lambda h: h.descriptors(100)):
        floods = moo.spawn(Floods)
        with pytest.raises(moo.ActorDied):
            try:
                spoil(floods)
            except OSError:
                pass  # the agent has closed its end before all was sent
            assert eventually(lambda f=floods: f.ping() != "pong")  # type: ignore[misc]
    assert bystander.is_well()
