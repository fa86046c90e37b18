# SPDX-License-Identifier: MIT
"""Nodes for tests: in this process, and in processes of their own."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mooactor.control import frames
from mooactor.control.channel import Channel
from mooactor.control.node import Node
from mooactor.control.sockets import Sockets, has_news

ROOT = Path(__file__).parents[2]
SECRET = bytes(range(32))
PROGRAM = "tests.control.node_program"


class Recorder:
    """A listener that keeps everything."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.closed: list[str] = []
        self.closed_at = 0.0
        self.channels: list[Channel] = []

    def accept(self, channel: Channel) -> Recorder:
        self.channels.append(channel)
        return self

    def handle(self, channel: Channel, data: bytes) -> None:
        self.messages.append(msgspec.msgpack.decode(data))

    def channel_closed(self, channel: Channel, why: str) -> None:
        self.closed.append(why)
        self.closed_at = time.monotonic()

    @property
    def numbers(self) -> list[int]:
        return [message["n"] for message in self.messages]


class Echo(Recorder):
    def handle(self, channel: Channel, data: bytes) -> None:
        super().handle(channel, data)
        channel.post_encoded([data])


def together(
    nodes: Sequence[Node], condition: Callable[[], object], timeout_s: float = 20.0
) -> bool:
    """Serve several nodes until the condition holds; whether it does in time."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            return False
        for node in nodes:
            node.run_until(lambda: False, 0.001)
    return True


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextlib.contextmanager
def node(secret: bytes = SECRET, **options: Any) -> Iterator[Node]:
    made = Node(secret, **options)
    try:
        yield made
    finally:
        made.close(linger_s=0.2)


class BareRouter:
    """One that admits nodes, and says nothing to them but what the test says."""

    def __init__(self, sockets: Sockets) -> None:
        self.socket = sockets.listener(0)
        port = self.socket.bind_to_random_port("tcp://127.0.0.1")
        self.address = f"tcp://127.0.0.1:{port}"
        self._gate = sockets.gate
        self._got: list[frames.Frame] = []
        self._last = b""

    def kinds(self) -> list[int]:
        """Of the frames that have come by now."""
        self._gate.serve()
        while has_news(self.socket):
            self._last, data = self.socket.recv_multipart()
            self._got.append(frames.unpack(data))
        return [frame.kind for frame in self._got]

    def say(self, kind: int, **more: Any) -> None:
        """A frame of the channel that spoke last, over its connection."""
        frame = frames.pack(kind, self._got[-1].channel, **more)
        self.socket.send_multipart([self._last, frame])

    def hang_up(self) -> None:
        """Messages that were said are sent before."""
        self.socket.close(linger=1000)


@contextlib.contextmanager
def router() -> Iterator[BareRouter]:
    sockets = Sockets(SECRET)
    made = BareRouter(sockets)
    try:
        yield made
    finally:
        made.socket.close()
        sockets.close()


class Remote:
    """A node in a process of its own, which sends every message back."""

    def __init__(
        self, *arguments: str, words: Sequence[str] = (), secret: bytes = SECRET
    ) -> None:
        """`words` go before the command, such as those of `Cable.on`."""
        command = [*words, sys.executable, "-m", PROGRAM, secret.hex(), *arguments]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # what was read is not hidden from `select`
        )
        started = self.read()
        self.address: str = started["address"]
        self.pid: int = started["pid"]

    def read(self) -> dict[str, Any]:
        """The next event that it reports."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the node has ended with {self.process.wait()}"
        found: dict[str, Any] = json.loads(line)
        return found

    def has_more(self) -> bool:
        """Whether there is an event to be read."""
        return bool(select.select([self.process.stdout], [], [], 0)[0])

    def write(self, **command: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def introduced(
    here: Node, channel: Channel, mine: Recorder
) -> tuple[Channel, Recorder]:
    """Both sides of a channel to a `Remote` know that it stands."""
    channel.post({"n": "both"})
    assert here.run_until(lambda: mine.messages, 20)
    mine.messages.clear()
    return channel, mine
