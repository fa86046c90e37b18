# SPDX-License-Identifier: MIT
"""One attempt to connect to a node, and if it succeeds the connection: a DEALER of its
own, with a monitor, so no frame of one connection can be sent over the next."""

from __future__ import annotations

import math
from collections.abc import Callable

import zmq

from mooactor.control import addresses, parts
from mooactor.control.clock import Clock
from mooactor.control.readiness import TURN_S, Readiness
from mooactor.control.reliable import WINDOW
from mooactor.control.sockets import Sockets, event_of, has_news, unmonitor
from mooactor.times import HANDSHAKE_MS

_FRAMES_AT_A_TIME = 4 * WINDOW  # more than are under way
_HANDSHAKE_FAILURES = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_EVENTS = zmq.EVENT_CLOSED | zmq.EVENT_DISCONNECTED | _HANDSHAKE_FAILURES


class Attempt:
    """A connection, or the attempt at one."""

    def __init__(
        self,
        sockets: Sockets,
        ready: Readiness,
        clock: Clock,
        target: tuple[str, int],
        beat_s: float,
        connect_ms: int,
        arrived: Callable[[bytes], None],
        failed: Callable[[bool], None],
    ) -> None:
        """`connect_ms`: until the kernels are connected. `arrived` gets each frame.
        `failed` is called when the connection ends or does not come about: whether it
        was refused after the other side had answered.

        Raises:
          ZMQError: this process can have no more sockets.
        """
        self._ready = ready
        self._now = clock.now
        self._arrived = arrived
        self._failed = failed
        self._turned_down = False
        # An answer that comes no more is no refusal.
        self._turns_late = self._now() + HANDSHAKE_MS / 1000 / 2
        self._dealer = sockets.dealer(beat_s, connect_ms)
        try:
            self._monitor = sockets.monitor(self._dealer, _EVENTS)
        except BaseException:
            self._dealer.close(linger=0)
            raise
        host, _ = target
        self._dealer.setsockopt(zmq.IPV6, ":" in host)
        self._dealer.connect(addresses.form(*target))
        self._fds = [int(s.getsockopt(zmq.FD)) for s in (self._dealer, self._monitor)]
        for fd, action in zip(self._fds, (self._read, self._read_events)):
            ready.watch(fd, action)
            ready.soon(action)  # a socket tells of its first news to a reader only

    def send(self, frame: bytes) -> bool:
        try:
            self._dealer.send(frame, zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        return True

    def sent(self) -> None:
        # Sending may have swallowed the sign that something has come.
        if has_news(self._dealer):
            self._ready.soon(self._read)

    def _read(self) -> None:
        if self._read_until(self._now() + TURN_S):
            self._ready.soon(self._read)

    def _read_until(self, end: float) -> bool:
        """Hand on frames; whether there may be more."""
        for _ in range(_FRAMES_AT_A_TIME):
            if self._dealer.closed:
                return False
            try:
                frame = self._dealer.recv(zmq.NOBLOCK)
            except zmq.ZMQError:
                return False
            self._arrived(frame)
            if self._now() >= end:
                break
        return True

    def _read_events(self) -> None:
        while not self._dealer.closed:
            try:
                head, _ = parts.receive_bytes(self._monitor)
            except zmq.ZMQError:
                return
            event, _ = event_of(head)
            if event & _HANDSHAKE_FAILURES:
                self._turned_down = self._now() < self._turns_late
            else:
                self._ready.soon(self._finish)
                return

    def _finish(self) -> None:
        # libzmq tells of the end just before it hands on the last frames.
        self._read_until(math.inf)
        if not self._dealer.closed:
            self._failed(self._turned_down)

    def close(self, linger_ms: int = 0) -> None:
        if not self._dealer.closed:
            for fd in self._fds:
                self._ready.unwatch(fd)
            unmonitor(self._dealer, self._monitor)
            self._dealer.close(linger=linger_ms)
