# SPDX-License-Identifier: MIT
"""The peers: raw pyzmq, the floor of every runtime on ZeroMQ; and Ray, if installed.

Raw pyzmq is a DEALER here and a ROUTER in another process, with pickles of protocol 5
and arrays as frames of their own. It is only the echo: no deadlines, order or errors.
"""

import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import zmq

from mooactor.cli.bench.measure import THOROUGH, median_seconds, rate, turn_about

ZMQ = "raw pyzmq"
# The works that Ray can do, too.
COLD = "import, init, spawn and first call"
EIGHT = "8 more actors, torch loaded"
PIPELINED = "pipelined calls, one caller, one actor"
WINDOW = 500  # calls outstanding, half of libzmq's high-water mark


class Echo:
    """The calling side of raw pyzmq."""

    def __init__(self, socket: zmq.Socket[bytes], pid: int) -> None:
        self._socket = socket
        self.pid = pid  # of the process that answers

    def ping(self) -> None:
        """One empty call."""
        self._send("ping", None)
        self._receive()

    def ping_many(self, count: int) -> None:
        """Empty calls, as many outstanding as the window allows."""
        for sent in range(count + WINDOW):
            if sent < count:
                self._send("ping", None)
            if sent >= WINDOW:
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
    with tempfile.TemporaryDirectory() as folder, zmq.Context() as context:
        address = f"ipc://{Path(folder) / 'echo'}"
        command = [sys.executable, "-m", __name__, address]
        with subprocess.Popen(command) as server, context.socket(zmq.DEALER) as socket:
            socket.linger = 0
            socket.connect(address)
            try:
                yield Echo(socket, server.pid)
            finally:
                server.kill()


def serve(socket: zmq.Socket[bytes]) -> None:
    """Answer on a ROUTER until killed."""
    while True:
        identity, *frames = socket.recv_multipart(copy=False)
        method, argument = unpacked(frames)
        reply = None if method == "ping" else (float(argument[0]), argument.nbytes)
        socket.send_multipart([identity.bytes, *packed(reply)])


def measure_ray() -> dict[str, float]:
    """Ray's figures, by the `work` of rows."""
    began = time.perf_counter()
    import ray

    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")

    class Remote:
        def ping(self) -> None:
            return None

        def size_of(self, values: Any) -> tuple[float, int]:
            return float(values[0]), int(values.nbytes)

    remote = ray.remote(num_cpus=0)(Remote)
    actor = remote.remote()
    ray.get(actor.ping.remote())
    found = {f"{COLD}, without torch": time.perf_counter() - began}
    began = time.perf_counter()
    eight = [remote.remote() for _ in range(8)]
    ray.get([one.ping.remote() for one in eight])
    found[EIGHT] = time.perf_counter() - began
    found["empty call, blocking, p50"], found[PIPELINED] = turn_about(
        THOROUGH.rounds,
        lambda: median_seconds(lambda: ray.get(actor.ping.remote()), 200) * 1e6,
        lambda: rate(lambda n: ray.get([actor.ping.remote() for _ in range(n)]), 3000),
    )
    for megabytes in (1, 64):
        values = np.random.default_rng(0).random((megabytes << 20) // 8)
        seconds = median_seconds(lambda: ray.get(actor.size_of.remote(values)), 12)  # noqa: B023
        found[f"{megabytes} MB numpy argument"] = values.nbytes / 1e9 / seconds
    ray.shutdown()
    return found


if __name__ == "__main__":
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.bind(sys.argv[1])
        serve(router)
