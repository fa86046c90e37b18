# SPDX-License-Identifier: MIT
"""Two network namespaces joined by a veth pair: two hosts on one machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

_ADDRESSES = ("10.213.77.1", "10.213.77.2")


class Host(NamedTuple):
    """A namespace with its address; `command` runs a program there."""

    name: str
    address: str
    end: str  # of the cable, as a network interface

    def command(self, *words: str) -> list[str]:
        return ["ip", "netns", "exec", self.name, *words]


def obstacle() -> str | None:
    """Why namespaces cannot be made here, None if they seem possible."""
    if shutil.which("ip") is None:
        return "needs the program ip (Debian: apt-get install iproute2)"
    if os.geteuid() != 0:
        return "making network namespaces needs root"
    return None


@contextmanager
def two_namespaces() -> Iterator[tuple[Host, Host]]:
    """Make the pair; it goes at the end.

    Raises:
      OSError: the system refused, as it does inside most containers.
    """
    names = [f"moo-bench-{os.getpid()}-{side}" for side in "ab"]
    ends = [f"moo{os.getpid()}{side}" for side in "ab"]
    hosts = tuple(map(Host, names, _ADDRESSES, ends))
    try:
        for name in names:
            _ip("netns", "add", name)
        first, second = names
        pair = ["link", "add", ends[0], "netns", first, "type", "veth"]
        _ip(*pair, "peer", "name", ends[1], "netns", second)
        for host in hosts:
            address = f"{host.address}/24"
            _ip("-n", host.name, "address", "add", address, "dev", host.end)
            _ip("-n", host.name, "link", "set", host.end, "up")
            _ip("-n", host.name, "link", "set", "lo", "up")
        yield hosts[0], hosts[1]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def cut(host: Host) -> None:
    """Take the cable out of a host."""
    _ip("-n", host.name, "link", "set", host.end, "down")


def swallow(source: Host, target: Host) -> None:
    """From here on all that `source` sends to `target` is lost, and no kernel knows."""
    wrong = f"{target.address} lladdr 02:00:00:00:00:01 nud permanent"
    words = ("neigh", "replace", "to", *wrong.split(), "dev", source.end)
    _ip("-n", source.name, *words)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
