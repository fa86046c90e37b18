# SPDX-License-Identifier: MIT
"""Messages of processes on a host, to a channel that takes them slowly."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest

from mooactor.control.lifeline import Lifeline
from mooactor.control.messages import Message, encode, encode_in_parts
from mooactor.control.reliable import Data
from mooactor.host import guest
from mooactor.host.eventloop import EventLoop
from mooactor.host.guest import LineRelay
from mooactor.host.protocol import TO_HOME, Closed, Exited, OverLine
from mooactor.process.parcel import sealed

_KIB, _MIB = 1 << 10, 1 << 20


class Slow:
    """A channel that keeps what is posted until it is told to send."""

    is_open = True

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self._sizes: list[int] = []
        self.posted = 0

    @property
    def handled(self) -> int:
        return self.posted - self.queued

    @property
    def queued(self) -> int:
        return sum(self._sizes)

    def post(
        self, message: Message, parcels: Sequence[Data] = (), *, patient: bool = False
    ) -> None:
        assert patient
        data = b"".join(encode_in_parts(message, parcels))
        self._sizes.append(len(data))
        self.posted += len(data)
        self.messages.append(TO_HOME.decode(data))

    def send(self, count: int = 1 << 30) -> None:
        del self._sizes[:count]

    def close(self, why: str = "") -> None:
        self.is_open = False

    def of(self, number: int) -> list[Any]:
        """All of one process, as `Process.said` has it."""
        mine = [one for one in self.messages if one.number == number]
        return [
            msgspec.msgpack.decode(one.message)["n"]
            if isinstance(one, OverLine)
            else type(one)
            for one in mine
        ]


class Process:
    """Both ends of its line, and what it has said."""

    def __init__(self, number: int, loop: EventLoop, lines: LineRelay) -> None:
        ours, theirs = socket.socketpair()
        self.number, self.line, self.mine = number, Lifeline(ours), Lifeline(theirs)
        self.said: list[Any] = []
        self.alive = True
        self._loop, self._lines = loop, lines
        loop.watch_line(self.line, self)

    def say(self, *, data: int = 0, parcel: int = 0) -> None:
        """Say the next number, with so many bytes."""
        fds = [sealed([bytes(parcel)])] if parcel else []
        self.mine.post(encode({"n": len(self.said), "data": bytes(data)}), fds)
        for fd in fds:
            os.close(fd)
        self.said.append(len(self.said))

    def handle(self, line: Any, data: bytes, fds: list[int]) -> None:
        self._lines.said(line, self.number, data, fds)

    def line_closed(self, line: Any) -> None:
        self._lines._channel.post(Closed(self.number), patient=True)

    def die(self) -> None:
        self.mine.close()
        self._loop.read_to_the_end(self.line)
        self.line.close()
        self._lines._channel.post(Exited(self.number, 0, [], False), patient=True)
        self.said += [Closed, Exited]
        self.alive = False


class Agent:
    """An event loop with processes, and their channel."""

    def __init__(self) -> None:
        self.loop, self.channel = EventLoop(), Slow()
        self.lines = LineRelay(self.loop, self.channel)  # type: ignore[arg-type]
        self.processes: list[Process] = []

    def process(self) -> Process:
        number = len(self.processes)
        self.processes.append(Process(number, self.loop, self.lines))
        return self.processes[-1]

    def round(self) -> None:
        for one in self.processes:
            if one.alive:
                one.mine.flush()
        self.loop.serve(time.monotonic())

    def serve(self, condition: Callable[[], object]) -> bool:
        until = time.monotonic() + 20.0
        while not condition():
            if time.monotonic() > until:
                return False
            self.round()
        return True


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    monkeypatch.setattr(guest, "_RETRY_S", 1e-6)
    made = Agent()
    yield made
    for one in made.processes:
        if one.alive:
            made.loop.close_line(one.line)
            one.line.close()
            one.mine.close()
    made.loop._selector.close()


def test_what_there_is_no_room_for_waits_in_the_socket_of_its_process(
    agent: Agent,
) -> None:
    one, other = agent.process(), agent.process()
    one.say(parcel=3 * _MIB)
    assert agent.serve(lambda: agent.channel.messages)
    for _ in range(300):  # that are no parcels: all that it says comes to 19 MiB
        one.say(data=64 * _KIB)
        agent.round()
    assert one.mine.kept > 4 * _MIB
    assert agent.channel.of(0) == [0]

    for _ in range(2):
        other.say()
        agent.round()
    assert agent.channel.of(1) == [0]  # there is no room for what it says next
    while len(agent.channel.of(0)) < 301 or len(agent.channel.of(1)) < 2:
        agent.channel.send()
        agent.round()
    assert agent.channel.of(0) == one.said
    assert agent.channel.of(1) == other.said
    assert one.mine.kept == 0


def test_the_last_words_of_a_process_go_behind_what_it_has_said(agent: Agent) -> None:
    one = agent.process()
    one.say(parcel=3 * _MIB)
    assert agent.serve(lambda: agent.channel.messages)
    one.say()  # which stays in its socket
    one.mine.flush()
    one.die()
    assert agent.channel.of(0) == [0, 1, Closed, Exited]


def test_nobody_looks_again_at_a_channel_that_is_closed(agent: Agent) -> None:
    agent.process().say(parcel=3 * _MIB)
    assert agent.serve(lambda: agent.channel.messages)
    assert agent.loop._timers.due() is not None
    agent.channel.close()
    assert agent.serve(lambda: agent.loop._timers.due() is None)


@pytest.mark.parametrize("seed", range(6))
def test_every_schedule_keeps_the_order_of_each_process(
    agent: Agent, seed: int
) -> None:
    rng = random.Random(seed)
    for _ in range(4):
        agent.process()
    for _ in range(400):
        living = [one for one in agent.processes if one.alive] or [agent.process()]
        match rng.choice("sssspprrrrcc" + "d" * (rng.random() < 0.1)):
            case "s":
                rng.choice(living).say(data=rng.choice((0, 0, 10, 100)) * _KIB)
            case "p":
                rng.choice(living).say(parcel=rng.randrange(1, 3 * _MIB))
            case "r":
                agent.round()
            case "c":
                agent.channel.send(rng.randrange(1, 4))
            case "d":
                if not (dying := rng.choice(living)).mine.kept:
                    dying.die()

    def quiet() -> bool:
        agent.channel.send()
        said = sum(len(one.said) for one in agent.processes)
        return len(agent.channel.messages) == said

    assert agent.serve(quiet)
    for one in agent.processes:
        assert agent.channel.of(one.number) == one.said
