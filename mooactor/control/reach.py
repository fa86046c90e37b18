# SPDX-License-Identifier: MIT
"""`Reach`: how a process of a session listens for processes of other hosts.

A session on one machine has none: its processes have no listener but a socket in a
private directory. In a session of several hosts each process also listens on TCP, with
CURVE; `admission` says who is let in.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import zmq

from mooactor.control.secret import stay_here
from mooactor.errors import MooError
from mooactor.tensors.network import ports_taken


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
    spared: tuple[int, ...] = ()
    """Ports between these that a broker listens on, or will; neither end is one."""

    def check(self, *listens: str) -> None:
        """For whatever this process listens on, besides `bind`.

        Raises:
          AuthError: the key does not serve there.
        """
        if self.local:
            stay_here([self.bind, *listens])

    def address(self, port: int) -> str:
        """The address that other hosts connect to."""
        return f"tcp://{bracketed(self.advertise)}:{port}"


def listening(reach: Reach) -> dict[str, Any]:
    """The options of a `node.Node` that listens so."""
    ports = None if reach.ports is None else _within(reach.ports, reach.spared)
    return {"bind": reach.bind, "advertise": reach.advertise, "ports": ports}


def _within(ports: Sequence[int], spared: Sequence[int]) -> list[int]:
    first, last = ports
    return [port for port in range(first, last + 1) if port not in spared]


def bracketed(address: str) -> str:
    """An IPv6 address as an endpoint of ZeroMQ has it; others as they are."""
    return f"[{address}]" if ":" in address and address[0] != "[" else address


def bind_tcp(socket: zmq.Socket[bytes], reach: Reach) -> int:
    """Have a socket listen as `reach` says; returns the port.

    Raises:
      MooError: no port is free, or the address is not of this machine.
    """
    where = bracketed(reach.bind)
    # On a machine without IPv6, ZeroMQ falls back to IPv4.
    socket.setsockopt(zmq.IPV6, int(reach.bind == "*" or ":" in reach.bind))
    if reach.ports is None:
        _bind(socket, f"tcp://{where}:*", reach)
        last = socket.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(last, bytes)
        return int(last.rstrip(b"\0").rpartition(b":")[2])
    ports = _within(reach.ports, reach.spared)
    random.shuffle(ports)  # many start together: they must not try the same ones
    for port in ports:
        if _bind(socket, f"tcp://{where}:{port}", reach):
            return port
    raise MooError(ports_taken(reach.bind, reach.ports))


def _bind(socket: zmq.Socket[bytes], endpoint: str, reach: Reach) -> bool:
    """False: the port is taken."""
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        raise MooError(
            f"a process of host {reach.host} cannot listen at {endpoint} "
            f"({error.strerror}): give an address of this machine with --bind"
        ) from None
    return True
