# SPDX-License-Identifier: MIT
"""`Reach`: how a process of a session listens for processes of other hosts.

A session on one machine has none: its processes have no listener but a socket in a
private directory. In a session of several hosts each process also listens on TCP, with
CURVE; `admission` says who is let in.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
import zmq


class Reach(msgspec.Struct, frozen=True, omit_defaults=True):
    """The addresses of one process. Its host's agent chooses them."""

    bind: str
    """Numeric address to listen on, "*" for all."""
    advertise: str
    """Numeric address at which other hosts reach this one."""
    host: str
    """The name of this host."""
    ports: tuple[int, int] | None = None
    """The first and the last of the ports to listen on; None: the system chooses."""
    local: bool = False
    """Whether the cluster's key serves on this host alone."""

    def check(self, *listens: str) -> None:
        """For whatever this process listens on, besides `bind`.

        Raises:
          AuthError: the key does not serve there.
        """
        if self.local:
            from mooactor.control.secret import stay_here

            stay_here([self.bind, *listens])


def listening(reach: Reach) -> dict[str, Any]:
    """The options of a `node.Node` that listens so."""
    return {"bind": reach.bind, "advertise": reach.advertise, "ports": _ports(reach)}


def listen(socket: zmq.Socket[bytes], reach: Reach) -> str:
    """Have a socket listen as `reach` says; the address for others.

    Raises:
      MooError: no port is free, or the address is not of this machine.
    """
    from mooactor.control import addresses

    ports = _ports(reach)
    if ports is not None:
        random.shuffle(ports)  # many start together: they must not try the same ones
    port = addresses.bind(socket, reach.bind, None, ports)
    return addresses.form(reach.advertise, port)


def _ports(reach: Reach) -> list[int] | None:
    if reach.ports is None:
        return None
    first, last = reach.ports
    return list(range(first, last + 1))
