# SPDX-License-Identifier: MIT
"""Raw pyzmq over TCP: encrypted with CURVE, as calls between hosts are, or plain."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import zmq

from mooactor.cli.bench.peers import ZMQ as ZMQ
from mooactor.cli.bench.peers import Echo, packed
from mooactor.cli.bench.peers import serve as serve_on
from mooactor.control import curve

SECRET = b"a secret for this benchmark"


def _dealer(
    context: zmq.Context[zmq.Socket[bytes]], is_curved: bool
) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    if is_curved:
        curve.make_client(socket, SECRET)
    return socket


@contextmanager
def connected(address: str, is_curved: bool) -> Iterator[Echo]:
    """The caller's side of a server that runs already, or soon."""
    with zmq.Context() as context, _dealer(context, is_curved) as socket:
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
            socket = stack.enter_context(_dealer(context, True))
            socket.connect(address)
            socket.send_multipart(packed(("ping", None)))
            sockets.append(socket)
        for socket in sockets[-at_a_time:]:
            socket.recv_multipart()


@contextmanager
def server(address: str) -> Iterator[int]:
    """A server with CURVE on this host; its pid."""
    command = [sys.executable, "-m", __name__, address, "curve"]
    with subprocess.Popen(command) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def serve(address: str, *options: str) -> None:
    """Answer until killed; with CURVE if ``curve`` is an option."""
    socket = zmq.Context().socket(zmq.ROUTER)
    if "curve" in options:
        curve.make_server(socket, SECRET)
    socket.bind(address)
    serve_on(socket)


if __name__ == "__main__":
    serve(*sys.argv[1:])
