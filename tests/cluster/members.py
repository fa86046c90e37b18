# SPDX-License-Identifier: MIT
"""The real broker, and hosts that join it and do nothing else, for tests of launching.

``python -m tests.cluster.members broker|host …`` takes the options of the commands.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from typing import Any

from mooactor import cli
from mooactor.cluster.launch import addresses
from mooactor.control import secret
from mooactor.control.channel import Channel
from mooactor.control.envelope import VERSION as WIRE
from mooactor.control.node import Node
from mooactor.host.eventloop import EventLoop
from mooactor.host.membership import Membership


class Host:
    """It ends by SIGTERM, and when it is told ``stop``."""

    def __init__(self, options: argparse.Namespace) -> None:
        if options.name == "broken":
            sys.exit("this host is broken")
        self.name, self.cpus, self.over = options.name, options.num_cpus, False
        loop = EventLoop()
        host = options.join.removeprefix("tcp://").rpartition(":")[0]
        local = addresses.is_loopback(host)
        key = secret.load(hosts=[host]).secret
        self.node = Node(key, bind="127.0.0.1" if local else addresses.own()[0])
        self.node.accept = lambda channel: self
        signal.signal(signal.SIGTERM, self.end)
        member = Membership(
            self.node,
            [options.join],
            self.announcement,
            loop.later,
            on_joined=self.joined,
        )
        loop.watch(self.node.fileno(), self.node.serve)
        while not self.over:
            due = self.node.due()
            soon = time.monotonic() + 0.1
            loop.serve(soon if due is None else min(due, soon))
            self.node.serve()
        member.close()
        self.node.close()

    def announcement(self) -> dict[str, Any]:
        amounts = {"cpus": 1, "gpus": 0, "memory": 0}
        return {
            "name": self.name,
            "id": self.node.id.hex(),
            "address": self.node.address,
            "kind": "host",
            **amounts,
            "labels": {},
            "free": amounts,
            "versions": {"mooactor": "", "python": "", "torch": None, "wire": WIRE},
            "sessions": [],
            "actors": 0,
        }

    def joined(self, address: str, notes: list[str]) -> None:
        print(f"mooactor host {self.name} joined {address}", flush=True)
        print(f"offers {self.cpus} cores of pid {os.getpid()}", flush=True)

    def handle(self, channel: Channel, message: dict[str, Any]) -> None:
        self.over = self.over or message.get("op") == "stop"

    def channel_closed(self, channel: Channel, why: str) -> None: ...

    def end(self, *_: object) -> None:
        self.over = True


def main() -> None:
    if sys.argv[1] != "host":
        raise SystemExit(cli.main())
    parser = argparse.ArgumentParser()
    for option in ("command", "--join", "--name", "--num-cpus", "--num-gpus"):
        parser.add_argument(option)
    Host(parser.parse_args())


if __name__ == "__main__":
    main()
