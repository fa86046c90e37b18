# SPDX-License-Identifier: MIT
"""Raw pyzmq: the floor that every runtime on ZeroMQ stands on.

A DEALER here, a ROUTER in a process of its own, pickles of protocol 5, arrays as frames
of their own. No deadlines, no order, no errors, no death notices: only the echo. Over
TCP it is encrypted with CURVE, as calls between hosts are.
"""

from __future__ import annotations

import pickle
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import zmq

from mooactor.cli.bench.measure import helper
from mooactor.control import curve

SECRET = b"a secret for this benchmark"
WINDOW = 500  # calls outstanding, half of libzmq's high-water mark


class Echo:
    """The calling side."""

    def __init__(self, socket: zmq.Socket[bytes], pid: int) -> None:
        self._socket = socket
        self.pid = pid  # of the process that answers

    def ping(self) -> None:
        """One empty call."""
        self._send("ping", None)
        self._receive()

    def ping_many(self, count: int) -> None:
        """Empty calls, as many outstanding as the window allows."""
        sent = 0
        for done in range(count):
            while sent < min(count, done + WINDOW):
                self._send("ping", None)
                sent += 1
            self._receive()

    def size_of(self, values: Any) -> Any:
        """Send an array; the other side reads an element and tells the size."""
        self._send("size", values)
        return self._receive()

    def _send(self, method: str, argument: Any) -> None:
        self._socket.send_multipart(packed((method, argument)), copy=argument is None)

    def _receive(self) -> Any:
        return unpacked(self._socket.recv_multipart(copy=False))


def packed(message: Any) -> list[Any]:
    """A pickle, and the buffers of the arrays in it."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(message, 5, buffer_callback=buffers.append)
    return [head, *(buffer.raw() for buffer in buffers)]


def unpacked(frames: list[zmq.Frame]) -> Any:
    """The inverse of `packed`; arrays view the frames."""
    head, *buffers = (frame.buffer for frame in frames)
    return pickle.loads(head, buffers=buffers)


@contextmanager
def echo() -> Iterator[Echo]:
    """An echo server in its own process, and its caller's side."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"ipc://{Path(folder) / 'echo'}"
        with helper("pyzmq", address) as server, connected(address) as found:
            found.pid = server.pid
            yield found


@contextmanager
def connected(address: str, curved: bool = False) -> Iterator[Echo]:
    """The caller's side of a server that runs already, or soon."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        if curved:
            curve.make_client(socket, SECRET)
        socket.connect(address)
        yield Echo(socket, 0)


def connect_all(address: str, count: int, at_a_time: int) -> None:
    """New connections with CURVE, each open until all have had an answer to a ping."""
    with zmq.Context() as context, ExitStack() as stack:
        context.max_sockets = count + 10
        sockets: list[zmq.Socket[bytes]] = []
        for number in range(count):
            if number >= at_a_time:
                sockets[number - at_a_time].recv_multipart()
            socket = stack.enter_context(context.socket(zmq.DEALER))
            socket.linger = 0
            curve.make_client(socket, SECRET)
            socket.connect(address)
            socket.send_multipart(packed(("ping", None)))
            sockets.append(socket)
        for socket in sockets[-at_a_time:]:
            socket.recv_multipart()


def serve(address: str, *options: str) -> None:
    """Answer until killed; with CURVE if ``curve`` is an option."""
    socket = zmq.Context().socket(zmq.ROUTER)
    if "curve" in options:
        curve.make_server(socket, SECRET)
    socket.bind(address)
    while True:
        identity, *frames = socket.recv_multipart(copy=False)
        method, argument = unpacked(frames)
        reply = None if method == "ping" else (float(argument[0]), argument.nbytes)
        socket.send_multipart([identity.bytes, *packed(reply)])


if __name__ == "__main__":
    serve(*sys.argv[1:])
