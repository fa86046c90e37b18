# SPDX-License-Identifier: MIT
"""Connections that break at random moments, with bytes under way: every message arrives
once and in order nevertheless. All schedules are walked in test_reliable.py."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mooactor.control import addresses
from mooactor.control import channel as channel_module
from mooactor.control.channel import Channel
from mooactor.control.node import Node
from mooactor.control.reliable import PIECE_BYTES
from mooactor.control.sockets import Sockets
from mooactor.times import CONNECT_MS, SHORTEST_CONNECT_MS
from tests.control.nodes import Echo, Recorder, node, together

Pair = tuple[Node, Node]


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """A busy machine may be silent for longer than a channel bears, which is not
    what is tested here: `test_silence` has that, in virtual time."""
    monkeypatch.setattr(channel_module, "CHANNEL_SILENCE_S", 60.0)
    with node() as one, node() as other:
        yield one, other


def cut(accepting: Node) -> int:
    """Break its connections, behind libzmq's back; how many there were. Frames that
    arrive from here on are lost."""
    cuts = 0
    for fd in list(accepting._acceptor._standing):
        try:
            connection = socket.socket(fileno=fd)
        except OSError:
            continue  # libzmq has closed it, and nobody has told the node
        with contextlib.suppress(OSError):
            if connection.getsockname()[1] == accepting.port:
                connection.shutdown(socket.SHUT_RDWR)
                cuts += 1
        connection.detach()
    return cuts


class Side:
    """One side of a channel, which posts messages of random sizes."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.sent = 0
        self.listener = Recorder()

    def say_something(self, channel: Channel) -> None:
        for _ in range(self.rng.randrange(5)):
            size = self.rng.choice((0, 10, 1000, PIECE_BYTES, 3 * PIECE_BYTES))
            channel.post({"n": self.sent, "data": bytes(size)})
            self.sent += 1


def test_random_breaks_lose_nothing_and_repeat_nothing(pair: Pair) -> None:
    one, other = pair
    rng = random.Random(0)
    here, there = Side(0), Side(1)
    other.accept = there.listener.accept
    channel = one.connect(other.address, here.listener)
    breaks = 0
    while breaks < 15 or min(here.sent, there.sent) < 50:
        here.say_something(channel)
        for theirs in there.listener.channels:
            there.say_something(theirs)
        one.run_until(lambda: False, rng.choice((0, 0.001, 0.003)))
        other.run_until(lambda: False, rng.choice((0, 0.001, 0.003)))
        if rng.random() < 0.05:
            breaks += cut(other)

    def all_here() -> bool:
        return (
            len(here.listener.messages) >= there.sent
            and len(there.listener.messages) >= here.sent
        )

    assert together(pair, all_here, 30)
    assert here.listener.closed == there.listener.closed == []
    assert here.listener.numbers == list(range(there.sent))
    assert there.listener.numbers == list(range(here.sent))


def test_breaks_before_and_after_the_first_answer_lose_and_repeat_nothing(
    pair: Pair,
) -> None:
    one, other = pair
    rng, breaks = random.Random(1), 0
    theirs: dict[bytes, Recorder] = {}
    other.accept = lambda channel: theirs.setdefault(channel.key, Recorder())
    opened: list[tuple[Channel, Side]] = []
    for number in range(30):
        here = Side(number)
        channel = one.connect(other.address, here.listener)
        here.say_something(channel)
        for _ in range(rng.randrange(3)):
            rng.choice(pair).run_until(lambda: False, rng.random() / 200)
            here.say_something(channel)
            breaks += cut(other)
        opened.append((channel, here))
    assert breaks >= 5
    assert together(pair, lambda: all(c.delivered for c, _ in opened), 30)
    for channel, here in opened:
        assert here.listener.closed == []
        assert theirs[channel.key].numbers == list(range(here.sent))


def test_a_name_of_two_hosts_stays_with_the_one_that_answered_and_comes_back_sooner(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    echo, mine = Echo(), Recorder()
    other.accept = echo.accept

    def look_up(host: str, port: int, found: Callable[[list[str]], None]) -> None:
        found(["127.0.0.1", "127.0.0.2"])  # nobody listens at the second

    waits, dealer = list[int](), Sockets.dealer

    def noting(sockets: Sockets, beat_s: float, connect_ms: int) -> Any:
        waits.append(connect_ms)
        return dealer(sockets, beat_s, connect_ms)

    monkeypatch.setattr(addresses, "look_up", look_up)
    monkeypatch.setattr(Sockets, "dealer", noting)
    channel = one.connect(f"tcp://two.example:{other.port}", mine)
    for number in range(6):
        channel.post({"n": number})
        assert together(pair, lambda: len(mine.messages) > number)
        cut(other)
    assert mine.numbers == list(range(6)) and mine.closed == []
    # How long this pair takes to connect is known by then: a lost packet costs less.
    assert waits[0] == CONNECT_MS
    assert SHORTEST_CONNECT_MS <= min(waits) < CONNECT_MS
