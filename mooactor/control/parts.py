# SPDX-License-Identifier: MIT
"""ZeroMQ messages in several parts, without waiting.

pyzmq's own functions for these combine its enumerations for each part, and ask the
socket whether another one follows: that is half of their time, and a node reads and
writes thousands of small messages a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import zmq

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
