# SPDX-License-Identifier: MIT
"""Hostile bytes: with the key they cost one channel, without it nothing is parsed."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import zmq

from mooactor.control import curve, frames, plain, strangers
from mooactor.control.acceptor import MAX_CHANNELS
from mooactor.control.node import Node
from mooactor.control.reliable import Inflow, Outflow, Violation
from tests.control.nodes import (
    SECRET,
    Echo,
    Recorder,
    Remote,
    introduced,
    node,
    router,
    together,
)
from tests.control.test_fuzz import mutate

KEY = b"8 bytes!"
ROUNDS = 30_000


def good_frames(key: bytes = KEY) -> list[bytes]:
    hello = {"wire": frames.WIRE, "id": b"n" * 8, "address": "tcp://h:1", "peer": b""}
    out = Outflow()
    out.post(plain.pack({"n": 1, "data": b"x" * 50}))
    ((number, piece),) = out.pieces()
    return [
        frames.pack_dict(frames.HELLO, key, hello, number=1),
        frames.pack(frames.DATA, key, number, 0, piece),
        frames.pack(frames.ACK, key),
        frames.pack_why(frames.CLOSE, key, "why"),
        frames.pack_why(frames.CLOSED, key, "why"),
        frames.pack_dict(frames.WELCOME, key, {"id": b"n" * 8}),
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
            plain.unpack(into.fetch())


def test_the_parser_refuses_or_accepts_and_does_nothing_else() -> None:
    rng = random.Random(0)
    sources = good_frames()
    counts = {"accepted": 0, "refused": 0}
    for _ in range(ROUNDS):
        try:
            parse(mutate(rng, rng.choice(sources)))
            counts["accepted"] += 1
        except (frames.Malformed, Violation, plain.Malformed):
            counts["refused"] += 1
    assert min(counts.values()) > ROUNDS // 50


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


def test_malformed_frames_of_an_insider_cost_no_other_channel(
    served: tuple[Node, Node, Recorder],
) -> None:
    _, other, _ = served
    rng = random.Random(1)
    for number in range(30):
        key = number.to_bytes(8, "big")
        sources = good_frames(key)
        with insider(other.address) as dealer:
            dealer.send(sources[0])
            for _ in range(50):
                dealer.send(mutate(rng, rng.choice(sources)))
            dealer.send_multipart([rng.randbytes(20)] * rng.randrange(1, 5))
            still_works(served)
    still_works(served)


@pytest.mark.slow
def test_insiders_that_flood_a_busy_node_or_come_and_go_do_not_end_it() -> None:
    """libzmq had failed assertions then: it stops to read where there is a limit on
    what it keeps, notices the end, and sends one more heartbeat; or the node's ZAP
    handler, which it has asked about those that are gone, cannot answer yet."""
    remote = Remote("127.0.0.1")
    try:
        with node() as here:
            mine = Recorder()
            channel = here.connect(remote.address, mine)
            introduced(here, channel, mine)
            remote.write(sleep=2.0)
            with insider(remote.address) as dealer:
                dealer.send(good_frames()[0])
                for _ in range(5000):
                    dealer.send(frames.pack(frames.ACK, KEY))
            for _ in range(50):
                with insider(remote.address) as dealer:
                    dealer.linger = 0
                    dealer.send(good_frames()[0])
                    here.run_until(lambda: False, 0.02)
            channel.post({"n": 1})
            fresh = Recorder()
            here.connect(remote.address, fresh).post({"n": 2})
            assert here.run_until(lambda: mine.messages and fresh.messages, 20)
            assert mine.numbers == [1] and fresh.numbers == [2]
        assert remote.process.poll() is None
    finally:
        remote.close()


@pytest.mark.parametrize("early", [False, True])
def test_an_answer_that_begins_with_anything_ends_that_channel_only(
    served: tuple[Node, Node, Recorder], early: bool
) -> None:
    """Also one that acknowledges before it welcomes, and then hangs up."""
    here, _, _ = served
    for kind in (frames.HELLO, frames.WELCOME, frames.DATA, frames.ACK, frames.CLOSE):
        mine = Recorder()
        with router() as there:
            here.connect(there.address, mine, early=early).post({"n": 1})
            assert together([here], lambda: len(there.kinds()) >= 1 + early)
            there.say(kind, taken=1, body=b"odd")
            there.hang_up()
            assert together([here], lambda: mine.closed)
        assert "broke the protocol" in mine.closed[0] and mine.messages == []
        still_works(served)


def test_an_address_that_nobody_can_ask_ends_no_node(
    served: tuple[Node, Node, Recorder],
) -> None:
    """A node asks at the address of the other side whether that is still there."""
    _, other, _ = served
    for host in ("[::1%é..b]:80", "[fe80::1%nosuch]:80", "[::1]:0"):
        theirs = Recorder()
        other.accept = theirs.accept
        hello = {"wire": frames.WIRE, "id": bytes(8), "peer": b""}
        with insider(other.address) as dealer:
            body = {**hello, "address": f"tcp://{host}"}
            dealer.send(frames.pack_dict(frames.HELLO, host.encode()[:8], body, 1))
            assert together((other,), lambda theirs=theirs: theirs.channels)
            assert frames.unpack(dealer.recv()).kind == frames.WELCOME
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
        dealer.send(frames.pack_dict(frames.HELLO, KEY, {"wire": 99, "new": 1}, 1))
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


def test_a_replayed_session_is_not_let_in(served: tuple[Node, Node, Recorder]) -> None:
    one, other, _ = served
    with Recording(other.port) as recording:
        mine = Recorder()
        through = one.connect(f"tcp://127.0.0.1:{recording.port}", mine)
        through.post({"n": 0})
        assert together((one, other), lambda: mine.numbers == [0])
        through.close()
        assert together((one, other), lambda: len(one.channels()) == 1)
    assert len(recording.sent) > 300
    assert together((other,), lambda: other.statistics()["connections_in"] == 1)
    before = other.statistics()
    with socket.create_connection(("127.0.0.1", other.port)) as raw:
        raw.sendall(recording.sent)
        raw.settimeout(20)
        with contextlib.suppress(ConnectionError):
            while raw.recv(1 << 16):  # until libzmq ends it
                pass
    assert together((other,), lambda: other.statistics()["connections_in"] == 1)
    assert other.statistics() == before
    still_works(served)


class Recording:
    """Between a client and a port of this host: it keeps what the client sends."""

    def __init__(self, port: int) -> None:
        self.sent = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._target = port
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        server = socket.create_connection(("127.0.0.1", self._target))
        self._sockets += [client, server]
        back = threading.Thread(target=self._carry, args=(server, client))
        self._threads.append(back)
        back.start()
        self._carry(client, server, keep=True)

    def _carry(
        self, source: socket.socket, sink: socket.socket, keep: bool = False
    ) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if keep:
                    self.sent += data
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *details: object) -> None:
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for sock in (*self._sockets, self._listener):
            sock.close()


def test_half_open_connections_leave_descriptors_for_the_rest(
    served: tuple[Node, Node, Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strangers, "MOST", 20)
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
