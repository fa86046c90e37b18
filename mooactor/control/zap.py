# SPDX-License-Identifier: MIT
"""The ZAP handler of one context (ZeroMQ RFC 27): it admits the clients of one secret.

libzmq asks it for every CURVE handshake, before any frame of that connection is seen.
Without a handler libzmq would admit every key, so make it before the first bind.
"""

from __future__ import annotations

import hmac
from typing import Any

import zmq

from mooactor.control import parts
from mooactor.control.curve import client_key

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
                request = parts.receive_bytes(self._socket)
            except zmq.Again:
                return
            parts.send(self._socket, self._answer(request))

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
