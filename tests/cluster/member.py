# SPDX-License-Identifier: MIT
"""A member in a process of its own: ``member.py NAME KEY-FILE BROKER…``.

It prints a JSON list for each thing that it is told. It ends when its input does.
"""

from __future__ import annotations

import json
import sys

from mooactor.control import secret
from mooactor.control.node import Node
from mooactor.host.eventloop import EventLoop
from mooactor.host.membership import Membership
from tests.cluster.rows import row


def say(*words: str) -> None:
    print(json.dumps(words), flush=True)


def main(name: str, key_file: str, *brokers: str) -> None:
    node, loop = Node(secret.read(key_file).secret, bind="*"), EventLoop()
    mine = row(name, node.id.hex(), address=node.address)
    running = [True]
    Membership(
        node,
        brokers,
        lambda: dict(mine),
        loop.later,
        on_joined=lambda address, notes: say("joined"),
        on_refused=lambda address, why: say("refused", why),
        on_lost=lambda address, why: say("lost", why),
        on_host=lambda found: say("host", found["name"], str(found["actors"])),
        on_gone=lambda found, why: say("gone", found["name"], why),
    )

    def read() -> None:
        number = sys.stdin.readline().strip()
        if number:
            mine["actors"] = int(number)
        else:
            running.clear()

    loop.watch(node.fileno(), node.serve)
    loop.watch(0, read)
    while running:
        loop.serve(node.due())
        node.serve()
    node.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
