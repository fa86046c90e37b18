# SPDX-License-Identifier: MIT
"""The ZeroMQ sockets of one node, all with CURVE, bounds and heartbeats.

libzmq's own thread sends the heartbeats (ZMTP 3.1, RFC 37) and answers them, so a
process whose Python is busy is alive to others. They cannot time out behind a large
message (libzmq#2709), because `control.reliable` cuts messages into small frames, of
which few are under way. Each side sends its own: the time to live that a heartbeat
carries ends with the next frame that arrives, without another being set.
"""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Iterator

import zmq

from mooactor.control import curve, fingerprints, frames
from mooactor.control.curve import Gate
from mooactor.errors import MooError
from mooactor.times import HALF_OPEN_MS, HANDSHAKE_MS

MAX_SOCKETS = 1 << 16
_DESCRIPTORS = 16  # twelve, and some while the node is made
_KEPT_ALIVE_S = 3
_NEVER_MS = 3_600_000
_BACKLOG = 4096  # connections that the kernel keeps until libzmq accepts them

_EVENT = struct.Struct("=HI")
_READABLE = int(zmq.POLLIN)  # a plain number: this is asked for each message
_monitors = itertools.count()

Socket = zmq.Socket[bytes]


def unnoticed_s(beat_s: float) -> float:
    """How long a connection can have been dead when libzmq gives it up."""
    return beat_s + _timeout_s(beat_s)


def _timeout_s(beat_s: float) -> float:
    return 2 * beat_s + 0.1


class Sockets:
    """Makes them, and ends with them."""

    def __init__(self, secret: bytes) -> None:
        """Raises MooError: this process has too few descriptors left."""
        _check_descriptors()
        self._secret = secret
        self.fingerprint = fingerprints.of(secret)
        self._context: zmq.Context[Socket] = zmq.Context(1)
        self._context.set(zmq.MAX_SOCKETS, MAX_SOCKETS)
        try:
            self.gate = Gate(self._context, secret)
        except BaseException:
            self._context.term()
            raise

    def listener(self, beat_s: float) -> Socket:
        """A ROUTER, not bound yet."""
        router = self._context.socket(zmq.ROUTER)
        _limit(router, beat_s)
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        router.setsockopt(zmq.HANDSHAKE_IVL, HALF_OPEN_MS)
        router.setsockopt(zmq.BACKLOG, _BACKLOG)
        curve.make_server(router, self._secret)
        return router

    def dealer(self, beat_s: float, connect_ms: int) -> Socket:
        """A DEALER for one connection: its user closes it before it connects again.
        Without reconnecting libzmq would drop frames that arrived before the end."""
        dealer = self._context.socket(zmq.DEALER)
        _limit(dealer, beat_s)
        dealer.setsockopt(zmq.RECONNECT_IVL, _NEVER_MS)
        dealer.setsockopt(zmq.CONNECT_TIMEOUT, connect_ms)
        dealer.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        curve.make_client(dealer, self._secret)
        return dealer

    def monitor(self, socket: Socket, events: int) -> Socket:
        """See `monitored`."""
        return monitored(self._context, socket, events)

    def close(self) -> None:
        """After all sockets were closed."""
        self.gate.close()
        self._context.term()


def _check_descriptors() -> None:
    """libzmq aborts the process if its first socket cannot have what it needs."""
    found: list[int] = []
    try:
        while len(found) < _DESCRIPTORS:
            found.append(os.eventfd(0, os.EFD_CLOEXEC))
    except OSError as error:
        raise MooError(
            f"a node needs {_DESCRIPTORS} descriptors, and this process can open "
            f"{len(found)} more ({error.strerror}): raise its limit (ulimit -n)"
        ) from None
    finally:
        for fd in found:
            os.close(fd)


def monitored(context: zmq.Context[Socket], socket: Socket, events: int) -> Socket:
    """Where the events of a socket of `context` are read. End it with `unmonitor`."""
    address = f"inproc://monitor-{next(_monitors)}"
    pair = context.socket(zmq.PAIR)
    pair.setsockopt(zmq.LINGER, 0)
    pair.setsockopt(zmq.RCVHWM, 0)  # else libzmq's thread would wait for room
    try:
        socket.monitor(address, events)
        pair.connect(address)
    except BaseException:
        pair.close()
        raise
    return pair


def unmonitor(socket: Socket, pair: Socket) -> None:
    """In this order: libzmq's thread would wait for a reader that is gone."""
    socket.monitor(None, 0)
    pair.close()


def has_news(socket: Socket) -> bool:
    """Whether there is something to receive."""
    return bool(int(socket.getsockopt(zmq.EVENTS)) & _READABLE)


def events_of(monitor: Socket) -> Iterator[tuple[int, int]]:
    """Those that have come by now, each with its value, without waiting."""
    while True:
        try:
            head, _ = curve.receive_bytes(monitor)
        except zmq.Again:
            return
        event, value = _EVENT.unpack(head)
        yield event, value


def _limit(socket: Socket, beat_s: float) -> None:
    # The window bounds what is under way. With a limit of its own ROUTER would drop
    # frames, and libzmq would stop reading a connection. If that ends then, its
    # heartbeats fail an assertion, and the process aborts (libzmq#4364, #3937; 4.3.5).
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, frames.MAX_FRAME + 64)
    socket.setsockopt(zmq.LINGER, 0)
    if beat_s:
        timeout_ms = round(_timeout_s(beat_s) * 1000)
        socket.setsockopt(zmq.HEARTBEAT_IVL, round(beat_s * 1000))
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, timeout_ms)
        # libzmq takes any traffic for an answer: while what this side sends is lost,
        # it hears the other's own heartbeats. The kernel misses the answers to ours.
        socket.setsockopt(zmq.TCP_MAXRT, timeout_ms)
    else:  # the kernel finds out
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 1)
        socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, 1)
        socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, _KEPT_ALIVE_S)
        socket.setsockopt(zmq.TCP_MAXRT, _KEPT_ALIVE_S * 1000)
