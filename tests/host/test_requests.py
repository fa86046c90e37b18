# SPDX-License-Identifier: MIT
"""Whatever the agent is asked, it serves everybody else as before."""

from __future__ import annotations

import math
import os
import random
import socket
from collections.abc import Iterator
from typing import Any

import pytest

import mooactor as moo
from mooactor.control import plain
from mooactor.process.current import current_runtime
from tests.actors.counter import Counter
from tests.conftest import eventually, leaked, resources
from tests.control.test_plain import mutated, value

SEED = int(os.environ.get("MOOACTOR_TEST_SEED", "8"))
REQUESTS = 10_000
OPERATIONS = (
    *("spawn", "ready", "failed", "stopping", "snapshot", "kill", "await_end"),
    *("watch", "monitor", "unmonitor", "lookup", "segment", "handle", "list"),
    *("shutdown", "configure", "", "_spawn", "__init__", "run"),
    *("supervise", "close", "stop", "link", "unlink"),
)
FIELDS = (
    *("id", "rid", "name", "label", "payload", "policy", "env", "num_gpus", "preload"),
    *("handle", "detached", "carried", "data", "error", "incarnation", "monitor"),
    *("timeout", "size", "grace", "op", "threads", "stream", "place"),
    *("member", "rules", "other", "members", "waiting"),
)
NUMBERS = (0, -1, 1, 1 << 16, (1 << 48) << 16, 1 << 63, -(1 << 80), 1 << 100)
QUANTITIES = (0.5, -1.0, math.inf, -math.inf, math.nan, 1e300)


def request(rng: random.Random, known: list[int]) -> dict[str, Any]:
    """A request of random fields, some of which make sense."""
    message: dict[str, Any] = {"op": rng.choice(OPERATIONS)}
    if message["op"] == "spawn" and rng.random() < 0.7:
        message |= whole_spawn(rng)
    for key in rng.sample(FIELDS, rng.randrange(5)):
        message[key] = odd(rng, known)
    return message


def odd(rng: random.Random, known: list[int]) -> Any:
    kinds = (NUMBERS, QUANTITIES, ("", "x", "\0", "é" * 400), known or NUMBERS)
    return rng.choice(rng.choice(kinds)) if rng.random() < 0.7 else value(rng, 2)


def whole_spawn(rng: random.Random) -> dict[str, Any]:
    """A spawn request that is right but for its payload."""
    return {
        "id": rng.getrandbits(48) << 16,
        "name": None,
        "label": "Random",
        "payload": rng.randbytes(rng.randrange(40)),
        "policy": None,
        "env": {},
        "threads": 1,
        "num_gpus": 0.0,
        "preload": [],
        "handle": b"",
        "detached": rng.random() < 0.5,
    }


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


def test_random_requests_of_the_driver_harm_nobody(bystander: Bystander) -> None:
    rng, agent = random.Random(SEED), current_runtime().agent
    own = bystander.actor._where()[1].actor_id
    spawned: list[int] = []
    for number in range(REQUESTS):
        message = request(rng, spawned)
        too_many = message["op"] == "spawn" and len(spawned) > 30
        if message["op"] == "spawn" and not too_many:
            spawned.append(message.get("id", 0))
        meant = message["op"] == "shutdown" or own in message.values()
        if not too_many and not meant:
            agent.tell(**message)
        if number % 1000 == 999:
            assert bystander.is_well(), f"seed {SEED}"
    assert agent.ask(op="list")["value"]


def test_a_request_that_makes_no_sense_is_answered_with_the_reason(
    bystander: Bystander,
) -> None:
    ask = current_runtime().agent.ask
    for message, reason in (
        ({"op": "dance"}, "'dance'"),
        ({"op": 3}, "no request 3"),
        ({"op": "lookup", "name": ["x"], "timeout": 0}, "name="),
        ({"op": "lookup", "name": "x", "timeout": math.nan}, "timeout="),
        ({"op": "segment", "name": "x", "size": -1}, "size=-1"),
        ({"op": "segment", "name": "x", "size": 1 << 62}, "size="),
        ({"op": "spawn", "id": 5}, "5 is no id"),
        ({"op": "ready"}, "only an actor"),
    ):
        with pytest.raises(moo.InternalError, match=reason):
            ask(20.0, **message)
    assert bystander.is_well()


def test_only_the_driver_ends_or_configures_the_session(bystander: Bystander) -> None:
    @moo.actor
    class Mutinies:
        def ask(self, op: str) -> str:
            try:
                current_runtime().agent.ask(20.0, op=op)
            except moo.InternalError as error:
                return str(error)
            return "done"

    mutinies = moo.spawn(Mutinies)
    for op in ("shutdown", "configure"):
        assert "only the program that started" in mutinies.ask(op)
    assert bystander.is_well()


@moo.actor
class Floods:
    """Writes to its own lifeline what no runtime would."""

    def _socket(self) -> socket.socket:
        fd = os.dup(current_runtime().lifeline_fd)
        line = socket.socket(fileno=fd)
        line.settimeout(20.0)  # not blocking: the two share that, too
        return line

    def frames(self, seed: int, count: int) -> None:
        """Frames whose bodies are mutated requests."""
        rng, line = random.Random(seed), self._socket()
        for _ in range(count):
            message = request(rng, [])
            if message["op"] in ("spawn", "stopping", "failed", "ready"):
                continue
            body = mutated(rng, plain.pack(message))
            line.sendall(len(body).to_bytes(4, "little") + b"\0" + body)

    def rubbish(self, seed: int) -> None:
        """Bytes without a head that makes sense."""
        self._socket().sendall(b"\xff" * 5 + random.Random(seed).randbytes(5000))

    def descriptors(self, count: int) -> None:
        """Descriptors that no frame claims."""
        line, fds = self._socket(), [0] * 8
        for _ in range(count):
            body = plain.pack({"op": "list"})
            head = len(body).to_bytes(4, "little") + b"\0"
            socket.send_fds(line, [head + body], fds)

    def ping(self) -> str:
        return "pong"


def test_mutated_frames_cost_nobody_else_anything(bystander: Bystander) -> None:
    floods = moo.spawn(Floods)
    for seed in range(SEED, SEED + 4):
        try:
            floods.frames.options(timeout=30)(seed, 500)
        except moo.ActorDied:  # a mutated request may have killed it: its own line
            floods = moo.spawn(Floods)
    assert bystander.is_well()


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
