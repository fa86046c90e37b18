# SPDX-License-Identifier: MIT
"""The inbox of a process of another host: TCP with CURVE, before and after that."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Callable, Iterator
from typing import Any

import zmq

from mooactor.control import curve, envelope
from mooactor.control.keys import new_process_id
from mooactor.process.system import resident_bytes
from tests.conftest import eventually
from tests.fuzz.mutation import asks_to_stop, mutate, seeds
from tests.process.guest import Guest
from tests.process.hosts import Hosts, hosts

_AT_A_TIME = 500
_PATIENCE_S = 60.0
_GROWTH = 200e6  # bytes
_HUGE = b"\x06" + (1 << 40).to_bytes(8, "big")  # the head of a long command frame
_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00CURVE" + bytes(15 + 1 + 31)


class Inbox:
    """A target: an actor that still does what it is asked."""

    def __init__(self, two: Hosts) -> None:
        self.two = two
        self.guest = two.start("b", Guest)
        self._asked = 0
        assert eventually(lambda: two.agent.members[self.guest._actor_id].place)
        place = two.agent.members[self.guest._actor_id].place
        assert place is not None
        self.address = place.address
        two.agent.complete = True
        self._before_contact()
        self.pid: int = self.guest.pid()
        self._resident = resident_bytes(self.pid)

    def _before_contact(self) -> None:
        """The actor is there, and nobody has connected to it."""

    def step(self, rng: random.Random) -> int:
        raise AssertionError("a target has its own")

    def check(self) -> None:
        """It answers, in its old process, and has not grown."""
        self._asked += 1
        assert self.guest.add.options(timeout=_PATIENCE_S)(self._asked) == self._asked
        assert self.guest.pid() == self.pid
        assert resident_bytes(self.pid) - self._resident < _GROWTH


class Insider(Inbox):
    """Frames of one with the transport's keys, with or without the session's key in
    the envelope."""

    def __init__(self, two: Hosts, socket: zmq.Socket[bytes]) -> None:
        super().__init__(two)
        self._socket = socket
        # Marks have a sender of their own: no mutated message can call them off.
        _, self._marks_prefix = self._sender()
        self._marks = 0
        curve.make_client(socket, two.key)
        socket.connect(self.address)
        self._seeds = seeds()

    def step(self, rng: random.Random) -> int:
        with self._a_sender() as good:
            for _ in range(_AT_A_TIME):
                frames = self._frames(rng, good)
                right = frames[0].startswith(good)
                if not right or not asks_to_stop(frames[0], self.two.key):
                    self._socket.send_multipart(frames)
        return _AT_A_TIME

    def send(self, messages: list[tuple[int, int, bytes]]) -> None:
        """Each is a kind, flags and a body."""
        with self._a_sender() as good:
            for number, (kind, flags, body) in enumerate(messages):
                head = envelope.pack_head(kind, flags, 0, 0, len(body), number, 0.0)
                message = good + head + body
                if not asks_to_stop(message, self.two.key):
                    self._socket.send(message)

    @contextlib.contextmanager
    def _a_sender(self) -> Iterator[bytes]:
        """How the messages of a process begin that the actor takes to be alive. It has
        read them all at the end."""
        sender, good = self._sender()
        yield good
        self._send_mark()
        # It has read them all, or they would wait there in ever larger numbers; and
        # while their sender lives, or they would be dropped unread.
        read = self.guest.marks.options(timeout=_PATIENCE_S)
        assert eventually(lambda: read() == self._marks, _PATIENCE_S)
        self.two.agent.tell_of_death(sender)  # nothing is kept for it any more
        del self.two.agent.members[sender]

    def _sender(self) -> tuple[int, bytes]:
        """A process that the actor takes to be alive: its id, and how its messages
        begin."""
        process_id = new_process_id()
        self.two.agent.expect(process_id)
        return process_id, envelope.prefix(self.two.key, process_id, 1)

    def _send_mark(self) -> None:
        self._marks += 1
        flags, name = envelope.EMPTY | envelope.ONE_WAY, b"\x04mark"
        head = envelope.pack_head(
            envelope.CALL, flags, 0, 0, len(name), self._marks, 0.0
        )
        self._socket.send(self._marks_prefix + head + name)

    def _frames(self, rng: random.Random, good: bytes) -> list[bytes]:
        source = rng.choice(self._seeds)
        if rng.random() < 0.7:
            return [good + mutate(rng, source[28:])]
        return [mutate(rng, source) for _ in range(rng.randint(1, 3))]


class Outsider(Inbox):
    """Bytes of one without the key, among them those of a recorded connection."""

    def __init__(self, two: Hosts) -> None:
        super().__init__(two)
        self.guest.add(0)
        assert self._proxy.record is not None
        found, self._proxy.record = bytes(self._proxy.record), None
        assert len(found) > 64 + 200 + 256  # greeting, hello, initiate, messages
        self._commands = list(_frames_of(found[64:]))
        host, _, port = self.address.removeprefix("tcp://").rpartition(":")
        self._where = host, int(port)
        self._seeds = seeds()

    def _before_contact(self) -> None:
        self._proxy = self.two.agent.proxy(self.guest._actor_id)
        self._proxy.record = bytearray()

    def step(self, rng: random.Random) -> int:
        sent = 0
        for _ in range(50):
            with contextlib.suppress(OSError), self._connected() as line:
                for piece in self._pieces(rng):
                    line.sendall(piece)
                    sent += 1
        assert self.guest.statistics()["dropped"] == 0
        return sent

    def _connected(self) -> socket.socket:
        return socket.create_connection(self._where, timeout=_PATIENCE_S)

    def _pieces(self, rng: random.Random) -> Iterator[bytes]:
        yield _GREETING if rng.random() < 0.9 else mutate(rng, _GREETING)
        whole = rng.randrange(len(self._commands))
        yield from self._commands[:whole]
        if rng.random() < 0.1:
            yield _HUGE
        for _ in range(20):
            choice = rng.random()
            if choice < 0.5:
                yield mutate(rng, rng.choice(self._commands))
            else:
                body = mutate(rng, rng.choice(self._seeds))
                flags = rng.choice((0, 1, 2, 4, 6))
                yield bytes((flags,)) + _length(flags, len(body)) + body


def _length(flags: int, size: int) -> bytes:
    return size.to_bytes(8, "big") if flags & 2 else bytes((min(size, 255),))


def _frames_of(data: bytes) -> Iterator[bytes]:
    """ZMTP frames: flags, a length of 1 or 8 bytes, the body (ZeroMQ RFC 23)."""
    at = 0
    while at < len(data):
        width = 8 if data[at] & 2 else 1
        size = int.from_bytes(data[at + 1 : at + 1 + width], "big")
        yield data[at : at + 1 + width + size]
        at += 1 + width + size


@contextlib.contextmanager
def _insider() -> Iterator[Insider]:
    with hosts("a", "b") as two, zmq.Context() as context:
        with context.socket(zmq.DEALER) as dealer:
            dealer.setsockopt(zmq.LINGER, 0)
            yield Insider(two, dealer)


@contextlib.contextmanager
def _outsider() -> Iterator[Outsider]:
    with hosts("a", "b") as two:
        yield Outsider(two)


TARGETS: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "inbox": _insider,
    "handshake": _outsider,
}
