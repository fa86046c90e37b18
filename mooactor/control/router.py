# SPDX-License-Identifier: MIT
"""A ROUTER, as a node reads and writes it."""

from __future__ import annotations

import zmq

from mooactor.control import parts
from mooactor.control.sockets import Socket, has_news


class Router:
    """`socket` is the user's to bind, watch and close."""

    def __init__(self, socket: Socket) -> None:
        self.socket = socket
        self._swallowed = False

    def send(self, identity: bytes, frame: bytes) -> bool:
        """Queue a frame. False: there is no such connection any more."""
        self._swallowed = True
        try:
            parts.send(self.socket, (identity, frame))
        except zmq.ZMQError:
            return False
        return True

    def receive(self) -> tuple[bytes, list[zmq.Frame]]:
        """The next message: which connection it came over, and its parts.

        Raises:
          zmq.Again: there is none.
        """
        identity, *found = parts.receive(self.socket)
        return identity.bytes, found

    def catch_up(self) -> None:
        """Take note of all connections that have ended: `send` alone may look for such
        news a millisecond later."""
        has_news(self.socket)

    def has_missed(self) -> bool:
        """Whether something has come of which the descriptor does not tell: sending may
        have swallowed the sign. Ask after the last of several sends."""
        asked, self._swallowed = self._swallowed, False
        return asked and has_news(self.socket)
