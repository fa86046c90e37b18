# SPDX-License-Identifier: MIT
"""Addresses of this machine, and whether another one answers."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import select
import socket
import struct
import time

_SIOCGIFADDR = 0x8915  # netdevice(7)
_ANYWHERE = ("192.0.2.1", "2001:db8::1")  # for documentation only; nothing is sent
_IFREQ = struct.Struct("16s24x")
_ADDRESS = slice(20, 24)  # of an IPv4 interface, in the answer


def bracketed(address: str) -> str:
    """As it stands before a port."""
    return f"[{address}]" if ":" in address and "[" not in address else address


def own() -> list[str]:
    """The addresses at which other machines may reach this one: first that of the
    default route, then those of all interfaces. Without a network, the loopback."""
    found = [_towards(anywhere) for anywhere in _ANYWHERE]
    found += [_of_interface(name) for _, name in socket.if_nameindex()]
    useful = [address for address in found if address and not is_loopback(address)]
    return list(dict.fromkeys(useful)) or ["127.0.0.1"]


def _towards(address: str) -> str | None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return None


def _of_interface(name: str) -> str | None:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            request = _IFREQ.pack(name.encode())
            answer = fcntl.ioctl(probe, _SIOCGIFADDR, request)
    except OSError:
        return None  # it has none, or is down
    return socket.inet_ntoa(answer[_ADDRESS])


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return address == "localhost"


def resolved(name: str) -> str | None:
    """An address of this name that other machines can use; None if it has none."""
    with contextlib.suppress(OSError):
        for *_, address in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM):
            if not is_loopback(str(address[0])):
                return str(address[0])
    return None


def reachable(addresses: list[str], patience_s: float = 0.5) -> str | None:
    """The first of ``tcp://ADDR:PORT`` at which somebody accepts connections now, with
    its name resolved."""
    probes: dict[int, tuple[socket.socket, str]] = {}
    poller = select.poll()
    for address in addresses:
        for probe, numeric in _probes(address):
            probes[probe.fileno()] = probe, numeric
            poller.register(probe, select.POLLOUT)
    deadline = time.monotonic() + patience_s
    try:
        while probes and (left := deadline - time.monotonic()) > 0:
            for fd, _ in poller.poll(left * 1000):
                probe, numeric = probes.pop(fd)
                poller.unregister(fd)
                with probe:
                    if not probe.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                        return numeric
        return None
    finally:
        for probe, _ in probes.values():
            probe.close()


def _probes(address: str) -> list[tuple[socket.socket, str]]:
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    found = []
    with contextlib.suppress(OSError):
        host = host.strip("[]")
        for family, kind, *_, peer in socket.getaddrinfo(
            host, int(port), type=socket.SOCK_STREAM
        ):
            probe = socket.socket(family, kind)
            probe.setblocking(False)
            probe.connect_ex(peer)
            found.append((probe, f"tcp://{bracketed(str(peer[0]))}:{port}"))
    return found
