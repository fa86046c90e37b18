# SPDX-License-Identifier: MIT
"""CURVE keys, derived from a secret that all sides hold.

All servers of one secret share one key pair, and all clients share another. The
*public* half of the servers' pair is as secret as the secret itself: without it nobody
can begin a handshake (CurveZMQ, RFC 26: the client's first message is boxed for it), so
libzmq drops strangers before anything of ours sees a byte.
"""

from __future__ import annotations

import functools
import hashlib
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
    """What the socket binds from now on takes clients of this secret only, once a ZAP
    handler admits them (`control.zap`)."""
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.CURVE_SECRETKEY, pair(secret, SERVER)[1])


def make_client(socket: zmq.Socket[Any], secret: bytes) -> None:
    """What the socket connects to from now on must be a server of this secret."""
    public, private = pair(secret, CLIENT)
    socket.setsockopt(zmq.CURVE_SERVERKEY, pair(secret, SERVER)[0])
    socket.setsockopt(zmq.CURVE_PUBLICKEY, public)
    socket.setsockopt(zmq.CURVE_SECRETKEY, private)
