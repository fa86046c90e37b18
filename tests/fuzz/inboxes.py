# SPDX-License-Identifier: MIT
"""The inbox of a process of another host: messages over TCP with CURVE."""

from __future__ import annotations

import contextlib
import random
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


class Inbox:
    """A target: an actor that still does what it is asked. It gets frames of one with
    the transport's keys, with or without the session's key in the envelope."""

    def __init__(self, two: Hosts, socket: zmq.Socket[bytes]) -> None:
        self.two = two
        self.guest = two.start("b", Guest)
        self._asked = 0
        assert eventually(lambda: two.agent.members[self.guest._actor_id].place)
        place = two.agent.members[self.guest._actor_id].place
        assert place is not None
        two.agent.complete = True
        self.pid: int = self.guest.pid()
        self._resident = resident_bytes(self.pid)
        self._socket = socket
        # Marks have a sender of their own: no mutated message can call them off.
        _, self._marks_prefix = self._sender()
        self._marks = 0
        curve.make_client(socket, two.key)
        socket.connect(place.address)
        self._seeds = seeds()

    def check(self) -> None:
        """It answers, in its old process, and has not grown."""
        self._asked += 1
        assert self.guest.add.options(timeout=_PATIENCE_S)(self._asked) == self._asked
        assert self.guest.pid() == self.pid
        assert resident_bytes(self.pid) - self._resident < _GROWTH

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


@contextlib.contextmanager
def _inbox() -> Iterator[Inbox]:
    with hosts("a", "b") as two, zmq.Context() as context:
        with context.socket(zmq.DEALER) as dealer:
            dealer.setsockopt(zmq.LINGER, 0)
            yield Inbox(two, dealer)


TARGETS: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "inbox": _inbox,
}
