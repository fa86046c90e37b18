# SPDX-License-Identifier: MIT
"""A node that sends every message back, as a process: for tests/control/nodes.py.

It prints events as lines of JSON. Its commands come as lines of JSON, too: ``connect``
opens a channel to an address, ``exit`` ends it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from mooactor.control.channel import Channel
from mooactor.control.node import Node


def tell(**event: Any) -> None:
    print(json.dumps(event), flush=True)


class Echo:
    def accept(self, channel: Channel) -> Echo:
        tell(event="accepted", address=channel.address)
        return self

    def handle(self, channel: Channel, data: bytes) -> None:
        channel.post_encoded([data])

    def channel_closed(self, channel: Channel, why: str) -> None:
        tell(event="closed", why=why, at=time.monotonic())


def main() -> None:
    secret, bind, *_ = sys.argv[1:]
    node = Node(bytes.fromhex(secret), bind=bind)
    echo = Echo()
    node.accept = echo.accept
    os.set_blocking(0, False)
    node._ready.watch(0, lambda: obey(node, echo))
    tell(address=node.address, pid=os.getpid())
    node.run_until(lambda: False)


def obey(node: Node, echo: Echo) -> None:
    data = os.read(0, 1 << 16)
    if not data:
        sys.exit()
    for line in data.splitlines():
        command = json.loads(line)
        if "connect" in command:
            node.connect(command["connect"], echo)
        if "exit" in command:
            node.close()
            sys.exit()


if __name__ == "__main__":
    main()
