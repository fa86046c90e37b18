# SPDX-License-Identifier: MIT
"""The processes of this machine that listen at addresses, and their end."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Iterable
from pathlib import Path

from mooactor.host import addresses

_LISTENS = "0A"  # TCP_LISTEN in /proc/net/tcp


class Listeners:
    """They are looked up once, while they listen.

    Processes of other machines, of other containers, and of users whose descriptors
    this one may not see are not among them.
    """

    def __init__(self, listened: Iterable[str]) -> None:
        """`listened`: addresses, ``tcp://HOST:PORT``."""
        parsed = list(map(addresses.parse, listened))
        here = set(filter(_is_here, {one.host for one in parsed}))
        sockets = _sockets({one.port for one in parsed if one.host in here})
        self._pidfds: list[int] = []
        for pid in _holders(sockets):
            with contextlib.suppress(OSError):
                self._pidfds.append(os.pidfd_open(pid))

    def wait(self, timeout_s: float) -> bool:
        """Wait until all have ended; False if one has not."""
        latest = time.monotonic() + timeout_s
        return all(_has_ended(fd, latest) for fd in self._pidfds)

    def close(self) -> None:
        """After the last `wait`."""
        for fd in self._pidfds:
            os.close(fd)


def _has_ended(pidfd: int, latest: float) -> bool:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(max(0.0, latest - time.monotonic()) * 1000))


def _is_here(host: str) -> bool:
    """Whether an address of this machine: only those can be bound to."""
    try:
        family, kind, *_, (ip, *_) = socket.getaddrinfo(
            host, 0, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind) as probe:
            probe.bind((ip, 0))
    except OSError:
        return False
    return True


def _sockets(ports: set[int]) -> set[str]:
    """The sockets that listen at these ports, as links of descriptors name them."""
    found = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                _, local, _, state, *_ = fields = line.split()
                if state == _LISTENS and int(local.rpartition(":")[2], 16) in ports:
                    found.add(f"socket:[{fields[9]}]")
    return found


def _holders(sockets: set[str]) -> list[int]:
    """The processes that have one of these sockets open, without this one."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc") if sockets else ()):
        with contextlib.suppress(OSError):
            links = (os.readlink(fd) for fd in Path("/proc", name, "fd").iterdir())
            if any(link in sockets for link in links) and int(name) != os.getpid():
                found.append(int(name))
    return found
