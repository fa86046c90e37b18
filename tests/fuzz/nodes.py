# SPDX-License-Identifier: MIT
"""Mutated frames to a node, over TCP, of one with the key; another channel to that node
must not notice."""

from __future__ import annotations

import contextlib
import random
import secrets
from collections.abc import Callable, Iterator

import zmq

from mooactor.control import curve, frames, sockets
from mooactor.control.node import Node
from mooactor.process.system import resident_bytes
from tests.control.nodes import SECRET, Recorder, Remote, node
from tests.control.test_channel_fuzz import good_frames
from tests.fuzz.mutation import mutate
from tests.processes import Process

_AT_A_TIME = 200  # frames over one connection; answers to as many find room
_PATIENCE_S = 60.0
_GROWTH = 50e6  # bytes


class ToNode:
    """A target: a node in a process of its own, which sends every message back."""

    def __init__(
        self, remote: Remote, here: Node, context: zmq.Context[zmq.Socket[bytes]]
    ) -> None:
        self._remote, self._here, self._context = remote, here, context
        self._process = Process.of(remote.pid)
        self._mine = Recorder()
        self._channel = here.connect(remote.address, self._mine)
        self._resident = 0
        self._steps = self._cut_off = 0

    def step(self, rng: random.Random) -> int:
        """Another connection, with a channel that is soon broken. It does not count if
        the connection ended before all was read."""
        sources = good_frames(secrets.token_bytes(frames.KEY_BYTES))
        with self._context.socket(zmq.DEALER) as dealer:
            dealer.linger = 0
            curve.make_client(dealer, SECRET)
            events = sockets.monitored(self._context, dealer, zmq.EVENT_DISCONNECTED)
            try:
                dealer.connect(self._remote.address)
                dealer.send(sources[0])
                for _ in range(_AT_A_TIME):
                    dealer.send(mutate(rng, rng.choice(sources)))
                stood = self._await_read(dealer, events)
            finally:
                sockets.unmonitor(dealer, events)
        self._echo()
        while self._remote.has_more():  # it tells of each channel
            self._remote.read()
        self._steps += 1
        self._cut_off += not stood
        return _AT_A_TIME if stood else 0

    def _await_read(self, dealer: zmq.Socket[bytes], events: zmq.Socket[bytes]) -> bool:
        """A hello always gets an answer: a welcome, or why not. False if
        the connection has ended instead: libzmq gives one up whose other side does not
        run for a second, and does not send again what was lost with it."""
        key = secrets.token_bytes(frames.KEY_BYTES)
        dealer.send(good_frames(key)[0])
        poller = zmq.Poller()
        poller.register(dealer, zmq.POLLIN)
        poller.register(events, zmq.POLLIN)
        while True:
            ready = dict(poller.poll(int(_PATIENCE_S * 1000)))
            assert ready, "it does not answer"
            if dealer not in ready:
                return False
            if frames.unpack(dealer.recv()).channel == key:
                return True

    def _echo(self) -> None:
        number = len(self._mine.messages)
        self._channel.post({"n": number})

        def came() -> bool:
            return len(self._mine.messages) > number or bool(self._mine.closed)

        assert self._here.run_until(came, _PATIENCE_S)
        assert self._mine.numbers[number:] == [number], self._mine.closed

    def check(self) -> None:
        """It is the same process, and has not grown; mutated frames end channels, and
        no connections."""
        self._echo()
        assert self._process.is_running()
        assert self._cut_off <= 1 + self._steps // 10, "it ends connections"
        now = resident_bytes(self._remote.pid)
        self._resident = self._resident or now
        assert now - self._resident < _GROWTH


@contextlib.contextmanager
def _to_node() -> Iterator[ToNode]:
    remote = Remote("127.0.0.1")
    try:
        with node() as here, zmq.Context() as context:
            yield ToNode(remote, here, context)
    finally:
        remote.close()


TARGETS: dict[str, Callable[[], contextlib.AbstractContextManager[ToNode]]] = {
    "node": _to_node,
}
