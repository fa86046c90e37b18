# SPDX-License-Identifier: MIT
"""Connections that break at random moments, with bytes under way: a proxy between two
nodes resets them. Every message arrives once and in order nevertheless."""

from __future__ import annotations

import contextlib
import os
import random
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mooactor.control import addresses
from mooactor.control.channel import Channel
from mooactor.control.node import Node
from mooactor.control.outgoing import SHORTEST_CONNECT_MS
from mooactor.control.reliable import PIECE_BYTES
from mooactor.control.sockets import CONNECT_MS, Sockets
from tests.control.nodes import Echo, Recorder, node, together

_AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER: a close resets the connection


class Proxy:
    """Carries connections to a port of this host, in a thread; `reset` breaks them,
    and drops the bytes that it and the kernel have of them."""

    def __init__(self, port: int) -> None:
        self.breaks = 0
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._wake, self._woken = os.pipe()
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def reset(self) -> None:
        os.write(self._woken, b"r")

    def close(self) -> None:
        os.write(self._woken, b"e")
        self._thread.join()
        self._selector.close()
        self._listener.close()
        os.close(self._wake)
        os.close(self._woken)

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj == self._wake:
                    self._break()
                    if os.read(self._wake, 1) == b"e":
                        return
                elif isinstance(key.fileobj, socket.socket):
                    self._carry(key.fileobj)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        server = socket.create_connection(("127.0.0.1", self._target))
        for one, other in ((client, server), (server, client)):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            self._pairs[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _carry(self, source: socket.socket) -> None:
        if source not in self._pairs:
            return  # broken a moment ago
        try:
            data = source.recv(1 << 16)
            self._pairs[source].sendall(data)
        except OSError:
            data = b""
        if not data:
            self._end(source)

    def _end(self, one: socket.socket) -> None:
        other = self._pairs.pop(one)
        del self._pairs[other]
        for sock in (one, other):
            self._selector.unregister(sock)
            sock.close()

    def _break(self) -> None:
        while self._pairs:
            self._end(next(iter(self._pairs)))
            self.breaks += 1


@pytest.fixture
def nodes() -> Iterator[tuple[Node, Node, Proxy]]:
    with node() as one, node() as other, contextlib.ExitStack() as stack:
        proxy = Proxy(other.port)
        stack.callback(proxy.close)
        yield one, other, proxy


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


@pytest.mark.parametrize("seed", range(4))
def test_random_breaks_lose_nothing_and_repeat_nothing(
    nodes: tuple[Node, Node, Proxy], seed: int
) -> None:
    one, other, proxy = nodes
    rng = random.Random(seed)
    here, there = Side(seed), Side(-seed)
    other.accept = there.listener.accept
    channel = one.connect(proxy.address, here.listener)
    end = time.monotonic() + 20
    while proxy.breaks < 15 and time.monotonic() < end:
        here.say_something(channel)
        for theirs in there.listener.channels:
            there.say_something(theirs)
        one.run_until(lambda: False, rng.choice((0, 0.001, 0.003)))
        other.run_until(lambda: False, rng.choice((0, 0.001, 0.003)))
        if rng.random() < 0.05:
            proxy.reset()
    assert proxy.breaks >= 15

    def all_here() -> bool:
        return (
            len(here.listener.messages) >= there.sent
            and len(there.listener.messages) >= here.sent
        )

    assert together((one, other), all_here, 30)
    assert here.listener.closed == there.listener.closed == []
    assert here.listener.numbers == list(range(there.sent))
    assert there.listener.numbers == list(range(here.sent))
    assert here.sent > 50 and there.sent > 50


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_breaks_before_and_after_the_first_answer_lose_and_repeat_nothing(
    nodes: tuple[Node, Node, Proxy], seed: int, early: bool
) -> None:
    one, other, proxy = nodes
    rng = random.Random(seed)
    theirs: dict[bytes, Recorder] = {}
    other.accept = lambda channel: theirs.setdefault(channel.key, Recorder())
    opened: list[tuple[Channel, Side]] = []
    for number in range(30):
        here = Side(number)
        channel = one.connect(proxy.address, here.listener, early=early)
        here.say_something(channel)
        for _ in range(rng.randrange(3)):
            rng.choice((one, other)).run_until(lambda: False, rng.random() / 200)
            here.say_something(channel)
            proxy.reset()
        opened.append((channel, here))
    assert proxy.breaks >= 5

    def all_here() -> bool:
        return all(channel.delivered for channel, _ in opened)

    assert together((one, other), all_here, 30)
    for channel, here in opened:
        assert here.listener.closed == []
        assert theirs[channel.key].numbers == list(range(here.sent))


def test_a_name_of_two_hosts_stays_with_the_one_that_answered(
    nodes: tuple[Node, Node, Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, proxy = nodes
    echo, mine = Echo(), Recorder()
    other.accept = echo.accept
    port = int(proxy.address.rpartition(":")[2])

    def look_up(host: str, port: int, found: Callable[[list[str]], None]) -> None:
        found(["127.0.0.1", "127.0.0.2"])  # nobody listens at the second

    monkeypatch.setattr(addresses, "look_up", look_up)
    channel = one.connect(f"tcp://two.example:{port}", mine)
    for number in range(5):
        channel.post({"n": number})
        assert together((one, other), lambda: len(mine.messages) > number)
        proxy.reset()
        assert together((one, other), lambda: proxy.breaks > number)
    channel.post({"n": 5})
    assert together((one, other), lambda: len(mine.messages) == 6)
    assert mine.numbers == list(range(6)) and mine.closed == []


def test_another_host_at_the_address_that_a_node_tells_says_nothing_about_it(
    nodes: tuple[Node, Node, Proxy],
) -> None:
    """As behind a translation of addresses: nobody listens there from this side."""
    _, other, proxy = nodes
    echo, mine = Echo(), Recorder()
    other.accept = echo.accept
    with node(advertise="127.0.0.9") as hidden:
        channel = hidden.connect(proxy.address, mine)
        for number in range(5):
            channel.post({"n": number})
            assert together((hidden, other), lambda: len(mine.messages) > number)
            assert echo.channels[0].address == hidden.address
            proxy.reset()
            assert together((other,), lambda: not echo.channels[0].connected)
            for _ in range(8):  # the probe would have been answered by now
                other.run_until(lambda: False, 0.005)
        channel.post({"n": 5})
        assert together((hidden, other), lambda: len(mine.messages) == 6)
    assert mine.numbers == list(range(6)) and mine.closed == []


def test_after_a_break_a_lost_packet_costs_less_than_at_first(
    nodes: tuple[Node, Node, Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long this pair takes to connect is known then."""
    one, other, proxy = nodes
    echo, mine, waits = Echo(), Recorder(), []
    other.accept = echo.accept
    dealer = Sockets.dealer

    def noting(sockets: Sockets, beat_s: float, connect_ms: int) -> Any:
        waits.append(connect_ms)
        return dealer(sockets, beat_s, connect_ms)

    monkeypatch.setattr(Sockets, "dealer", noting)
    channel = one.connect(proxy.address, mine)
    for number in range(5):  # a busy machine may take long for some of them
        channel.post({"n": number})
        assert together((one, other), lambda: len(mine.messages) > number)
        proxy.reset()
    assert waits[0] == CONNECT_MS
    assert SHORTEST_CONNECT_MS <= min(waits) < CONNECT_MS
