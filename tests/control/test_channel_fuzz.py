# SPDX-License-Identifier: MIT
"""Hostile bytes: with the key they cost one channel, without it nothing is parsed."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import zmq

from mooactor.control import curve, frames, unauthenticated
from mooactor.control.acceptor import MAX_CHANNELS
from mooactor.control.messages import encode
from mooactor.control.node import Node
from mooactor.control.reliable import Inflow, Outflow
from tests.control.nodes import (
    SECRET,
    Echo,
    Recorder,
    node,
    router,
    together,
)
from tests.fuzz.mutation import mutate

KEY = b"8 bytes!"


def good_frames(key: bytes = KEY) -> list[bytes]:
    hello = frames.Hello(frames.WIRE, b"n" * 8, "tcp://h:1")
    out = Outflow()
    out.post(encode({"n": 1, "data": b"x" * 50}))
    ((number, piece),) = out.pieces()
    return [
        frames.pack_struct(frames.HELLO, key, hello, number=1),
        frames.pack(frames.DATA, key, number, 0, piece),
        frames.pack(frames.ACK, key),
        frames.pack_why(frames.CLOSE, key, "why"),
        frames.pack_why(frames.CLOSED, key, "why"),
        frames.pack_struct(frames.WELCOME, key, frames.Welcome(b"n" * 8)),
    ]


def parse(data: bytes) -> None:
    frame = frames.unpack(data)
    reader: Any = {
        frames.HELLO: frames.read_hello,
        frames.WELCOME: frames.read_welcome,
        frames.CLOSE: frames.read_why,
        frames.CLOSED: frames.read_why,
    }.get(frame.kind)
    if reader is not None:
        reader(frame)
    elif frame.kind == frames.DATA:
        Outflow().acknowledge(frame.taken)
        into = Inflow()
        into.arrive(frame.number, frame.body)
        while into:
            into.fetch()


@contextlib.contextmanager
def insider(address: str, secret: bytes = SECRET) -> Iterator[zmq.Socket[bytes]]:
    """A socket that is let in."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 1000
        curve.make_client(dealer, secret)
        dealer.connect(address)
        yield dealer


@pytest.fixture
def served() -> Iterator[tuple[Node, Node, Recorder]]:
    """A node with a channel that must not notice anything: the one that opened it, the
    one that accepted it, and the listener of the first."""
    mine, echo = Recorder(), Echo()
    with node() as one, node() as other:
        other.accept = echo.accept
        one.connect(other.address, mine).post({"n": 0})
        assert together((one, other), lambda: mine.numbers == [0])
        yield one, other, mine


def still_works(served: tuple[Node, Node, Recorder]) -> None:
    one, other, mine = served
    (channel,) = one.channels()
    before = len(mine.messages)
    channel.post({"n": before})
    assert together((one, other), lambda: len(mine.messages) > before)
    assert mine.numbers == list(range(before + 1)) and mine.closed == []


def test_an_answer_that_begins_with_anything_ends_that_channel_only(
    served: tuple[Node, Node, Recorder],
) -> None:
    """Also one that acknowledges before it welcomes, and then hangs up."""
    here, _, _ = served
    for kind in (frames.HELLO, frames.WELCOME, frames.DATA, frames.ACK, frames.CLOSE):
        mine = Recorder()
        with router() as there:
            here.connect(there.address, mine).post({"n": 1})
            assert together([here], lambda: there.kinds())
            there.say(kind, taken=1, body=b"odd")
            there.hang_up()
            assert together([here], lambda: mine.closed)
        assert "broke the protocol" in mine.closed[0] and mine.messages == []
        still_works(served)


def test_a_hello_of_a_channel_that_has_ended_is_refused(
    served: tuple[Node, Node, Recorder],
) -> None:
    """A connection that comes late would have its messages handled twice."""
    _, other, _ = served
    theirs = Recorder()
    other.accept = theirs.accept
    hello, data, _, close, *_ = good_frames()
    for kinds in ([frames.WELCOME, frames.CLOSED], [frames.CLOSED]):
        with insider(other.address) as dealer:
            for frame in (hello, data, close):
                dealer.send(frame)
            found = answers(other, dealer, len(kinds))
        assert [kind for kind in found if kind != frames.ACK] == kinds
    assert len(theirs.messages) == 1
    still_works(served)


def answers(other: Node, dealer: zmq.Socket[bytes], count: int) -> list[int]:
    """The kinds of the frames that come, until so many are no ACK."""
    kinds: list[int] = []
    while len(kinds) - kinds.count(frames.ACK) < count:
        assert together((other,), lambda: dealer.poll(0))
        kinds.append(frames.unpack(dealer.recv()).kind)
    return kinds


def test_a_connection_has_one_channel(served: tuple[Node, Node, Recorder]) -> None:
    _, other, _ = served
    with insider(other.address) as dealer:
        dealer.send(good_frames()[0])
        dealer.send(good_frames(b"8 others")[0])
        assert answers(other, dealer, 2) == [frames.WELCOME, frames.CLOSED]


def test_another_version_is_named(served: tuple[Node, Node, Recorder]) -> None:
    _, other, _ = served
    with insider(other.address) as dealer:
        body = encode({"wire": 99, "new": 1})
        dealer.send(frames.pack(frames.HELLO, KEY, 1, 0, body))
        assert together((other,), lambda: dealer.poll(0))
        frame = frames.unpack(dealer.recv())
    assert frame.kind == frames.CLOSED
    assert "install one mooactor on all hosts" in frames.read_why(frame)


def test_the_number_of_channels_is_bounded(
    served: tuple[Node, Node, Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_CHANNELS < 1 << 16
    monkeypatch.setattr("mooactor.control.acceptor.MAX_CHANNELS", 3)
    _, other, _ = served
    found: list[frames.Frame] = []
    with contextlib.ExitStack() as stack:
        for number in range(5):
            dealer = stack.enter_context(insider(other.address))
            dealer.send(good_frames(number.to_bytes(8, "big"))[0])
            assert together((other,), partial(dealer.poll, 0))
            found.append(frames.unpack(dealer.recv()))
    assert [frame.kind for frame in found].count(frames.WELCOME) == 2
    assert "3 channels already" in frames.read_why(found[-1])
    still_works(served)


# -- without the key -----------------------------------------------------------------


def test_garbage_before_the_handshake_reaches_nothing(
    served: tuple[Node, Node, Recorder],
) -> None:
    _, other, _ = served
    admitted = other.statistics()["handshakes_admitted"]
    rng = random.Random(2)
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x01CURVE" + bytes(48)
    for number in range(200):
        with socket.create_connection(("127.0.0.1", other.port)) as raw:
            with contextlib.suppress(OSError):
                raw.sendall(mutate(rng, greeting) + rng.randbytes(rng.randrange(2000)))
        if number % 50 == 0:
            still_works(served)
    assert together((other,), lambda: other.statistics()["connections_in"] == 1)
    assert other.statistics()["handshakes_admitted"] == admitted
    still_works(served)


def test_half_open_connections_leave_descriptors_for_the_rest(
    served: tuple[Node, Node, Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unauthenticated, "MOST", 20)
    _, other, _ = served
    with contextlib.ExitStack() as stack:
        opened = [
            stack.enter_context(socket.create_connection(("127.0.0.1", other.port)))
            for _ in range(200)
        ]
        # The oldest are shut down, before libzmq gives them up.
        for raw in opened[:-20]:
            while not ended(raw):
                other.serve()
        assert other.statistics()["connections_turned_away"] >= 100
        still_works(served)


def ended(raw: socket.socket) -> bool:
    """Whether the other side has closed the connection; its greeting may come first."""
    try:
        return not raw.recv(1 << 16, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
