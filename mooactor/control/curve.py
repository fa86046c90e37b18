# SPDX-License-Identifier: MIT
"""CURVE keys, derived from a secret that all sides hold.

All servers of one secret share one key pair, and all clients share another. The
*public* half of the servers' pair is as secret as the secret itself: without it nobody
can begin a handshake (CurveZMQ, RFC 26: the client's first message is boxed for it), so
libzmq drops strangers before anything of ours sees a byte.

`Gate` is the ZAP handler of one context (ZeroMQ RFC 27): it admits the clients of one
secret. libzmq asks it for every CURVE handshake, before any frame of that connection is
seen. Without a handler libzmq would admit every key, so make it before the first bind.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
from collections.abc import Sequence
from typing import Any

import zmq
from zmq.utils import z85

from mooactor.errors import MooError

SERVER = b"server"
CLIENT = b"client"
_LEAST_BYTES = 16


@functools.lru_cache(maxsize=16)
def pair(secret: bytes, role: bytes) -> tuple[bytes, bytes]:
    """The public and the secret key of a role, in Z85 as libzmq takes them.

    Raises:
      MooError: this libzmq has no CURVE.
      ValueError: the secret is too short to be one.
    """
    if len(secret) < _LEAST_BYTES:
        raise ValueError(f"a secret of {len(secret)} bytes; {_LEAST_BYTES} are needed")
    if not zmq.has("curve"):
        raise MooError(
            "this libzmq has no CURVE, so nothing can listen for other hosts: install "
            "a wheel of pyzmq (pip install --force-reinstall pyzmq)"
        )
    seed = hashlib.blake2b(secret, digest_size=32, person=b"mooactor " + role)
    private: bytes = z85.encode(seed.digest())
    return zmq.curve_public(private), private


def client_key(secret: bytes) -> bytes:
    """The public key of clients as ZAP shows it: 32 bytes."""
    found: bytes = z85.decode(pair(secret, CLIENT)[0])
    return found


def make_server(socket: zmq.Socket[Any], secret: bytes) -> None:
    """Addresses that it binds from now on take clients of this secret only, once a ZAP
    handler admits them (`Gate`)."""
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.CURVE_SECRETKEY, pair(secret, SERVER)[1])


def make_client(socket: zmq.Socket[Any], secret: bytes) -> None:
    """It connects from now on to servers of this secret only."""
    public, private = pair(secret, CLIENT)
    socket.setsockopt(zmq.CURVE_SERVERKEY, pair(secret, SERVER)[0])
    socket.setsockopt(zmq.CURVE_PUBLICKEY, public)
    socket.setsockopt(zmq.CURVE_SECRETKEY, private)


# Messages in several parts, without waiting. pyzmq's own functions for these combine
# its enumerations for each part, and ask the socket whether another one follows: that
# is half of their time, and a node reads and writes thousands of messages a second.
_NOW = int(zmq.NOBLOCK)
_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)


def receive(socket: zmq.Socket[Any]) -> list[zmq.Frame]:
    """The parts of the next message.

    Raises:
      zmq.Again: there is none.
    """
    parts = [socket.recv(_NOW, copy=False)]
    while parts[-1].more:
        parts.append(socket.recv(_NOW, copy=False))
    return parts


def receive_bytes(socket: zmq.Socket[Any]) -> list[bytes]:
    """The same, as bytes."""
    return [part.bytes for part in receive(socket)]


def send(socket: zmq.Socket[Any], parts: Sequence[bytes]) -> None:
    """Queue a message.

    Raises:
      ZMQError: there is nobody to take it, or no room.
    """
    for part in parts[:-1]:
        socket.send(part, _MORE)
    socket.send(parts[-1], _NOW)


_ENDPOINT = "inproc://zeromq.zap.01"


class Gate:
    """Serve it whenever `fileno` is readable, until nothing more is there: it is the
    descriptor of a ZeroMQ socket, which tells of news only once."""

    def __init__(self, context: zmq.Context[Any], secret: bytes) -> None:
        self.admitted = 0
        self.refused = 0
        self._key = client_key(secret)
        self._socket = context.socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(_ENDPOINT)

    def fileno(self) -> int:
        return int(self._socket.getsockopt(zmq.FD))

    def serve(self) -> None:
        """Answer the waiting requests."""
        while True:
            try:
                request = receive_bytes(self._socket)
            except zmq.Again:
                return
            send(self._socket, self._answer(request))

    def _answer(self, request: list[bytes]) -> list[bytes]:
        # version, request, domain, address, identity, mechanism, credentials
        version, number = request[:2]
        if self._holds_the_key(request[5:]):
            self.admitted += 1
            return [version, number, b"200", b"OK", b"", b""]
        self.refused += 1
        return [version, number, b"400", b"not the key of this cluster", b"", b""]

    def _holds_the_key(self, proof: list[bytes]) -> bool:
        return (
            len(proof) == 2
            and proof[0] == b"CURVE"
            and hmac.compare_digest(proof[1], self._key)
        )

    def close(self) -> None:
        self._socket.close()
