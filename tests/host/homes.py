# SPDX-License-Identifier: MIT
"""`OtherHome`: says to the home of a session what the home of another one would."""

from __future__ import annotations

from typing import Any

from mooactor.control.channel import Channel
from mooactor.control.messages import Message
from mooactor.control.node import Node
from mooactor.host.protocol import (
    TO_NEIGHBOR,
    AllNamed,
    Answer,
    AskNames,
    Poll,
)
from tests.clusters import Cluster

_ANSWER_S = 30.0


class OtherHome:
    """A node with the cluster's key, of which no broker knows. There is no session.

    ``heard`` are the answers over the channel that it has opened last, ``asked`` the
    questions.
    """

    def __init__(self, made: Cluster, where: str = "d") -> None:
        secret = bytes.fromhex(made.key_file.read_text().strip())
        self.node = Node(secret, bind=made.network.address(where))
        self.heard: list[Message] = []
        self.asked: list[Message] = []
        self.closed: str | None = None
        self.channel: Channel | None = None

    def visit(self, address: str, namespace: str = "shared") -> Channel:
        """Open a channel, and ask for names over it."""
        self.heard, self.asked, self.closed = [], [], None
        self.channel = self.node.connect(address, self)
        self.channel.post(AskNames("x", namespace))
        return self.channel

    def await_told(self) -> None:
        """The other home has told all of its names, and asks for ours."""
        assert self.wait(lambda: AllNamed() in self.heard and self.asked), self.closed

    def wait(self, condition: Any, seconds: float = _ANSWER_S) -> bool:
        """Serve the node until it holds; False if it never did."""
        return self.node.run_until(condition, seconds)

    def handle(self, channel: Channel, data: bytes) -> None:
        message = TO_NEIGHBOR.decode(data)
        if isinstance(message, AskNames):
            self.asked.append(message)
            channel.post(AllNamed())
        elif isinstance(message, Poll):
            self.asked.append(message)
            channel.post(Answer(message.number))
        else:
            self.heard.append(message)

    def channel_closed(self, channel: Channel, why: str) -> None:
        if channel is self.channel:
            self.closed = why

    def close(self) -> None:
        self.node.close()
