# SPDX-License-Identifier: MIT
"""Addresses of nodes, ``tcp://HOST:PORT``: what to listen on, what others are told."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import zmq

from mooactor.errors import MooError
from mooactor.tensors import interfaces
from mooactor.tensors.network import ports_taken

EVERY = interfaces.EVERY
_ELSEWHERE = "192.0.2.1"  # RFC 5737: for documentation, so nobody's
# Letters of names and of interfaces; libzmq has a meaning for others, such as ``;``.
_NAME = re.compile(r"[A-Za-z0-9._-]{1,255}")
_KEPT = 256  # results of one function
_ZONE = re.compile(r"[A-Za-z0-9._-]{1,15}")  # IFNAMSIZ, without the zero


def is_host(text: str) -> bool:
    """Whether this is a name, an IPv4 address, or an IPv6 address without brackets, the
    latter perhaps with a zone (RFC 4007): ``fe80::1%eth0``.

    Invariant: whatever reads an address asks this. An address that one reader took and
    another refused would be handed on to where nobody expects that it is refused.
    """
    if ":" not in text:
        return _NAME.fullmatch(text) is not None
    address, zoned, zone = text.partition("%")
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return False
    return not zoned or _ZONE.fullmatch(zone) is not None


def is_port(text: str) -> bool:
    """Whether this is a number of a port, or 0 for any."""
    digits = text.isascii() and text.isdecimal() and len(text) <= 5
    return digits and int(text) < 1 << 16


@lru_cache(_KEPT)  # a broker meets each address of a join several times
def parse(address: str) -> tuple[str, int]:
    """Its host, without brackets, and its port.

    Raises:
      ValueError: it is no address, or not written as `form` writes it.
    """
    host, _, digits = address.removeprefix("tcp://").rpartition(":")
    host, port = host.strip("[]"), int(digits) if is_port(digits) else 0
    if not port or not is_host(host) or form(host, port) != address:
        raise ValueError(
            f"{address[:100]!r} is no address: give tcp://HOST:PORT, such as "
            "tcp://10.0.0.5:4431"
        )
    return host, port


def form(host: str, port: int | str) -> str:
    """The address of a host and a port."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


@lru_cache(_KEPT)
def is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only this host reaches that address; it is numeric or ``localhost``."""
    if host == "localhost":
        return True
    return is_numeric(host) and ipaddress.ip_address(host).is_loopback


def is_same(host: str, other: str) -> bool:
    """Whether two numeric hosts are one; IPv4 may be written as IPv6."""
    try:
        return _plain(host) == _plain(other)
    except ValueError:
        return False


@lru_cache(_KEPT)
def _plain(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    found = ipaddress.ip_address(host)
    return getattr(found, "ipv4_mapped", None) or found


def has_ipv6() -> bool:
    """Whether this machine has IPv6 at all."""
    try:
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close()
    except OSError:
        return False
    return True


# -- this host's own addresses -------------------------------------------------------


def towards(host: str) -> str | None:
    """The address of this host that connections to `host` come from, or None."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))  # sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return None


def own() -> str:
    """The address by which other hosts most likely reach this one."""
    return towards(_ELSEWHERE) or next(_of_interfaces(), "127.0.0.1")


def is_kept_here(port: int) -> bool:
    """Whether somebody of this host listens on that port, and for this host alone."""
    listeners = list(_listeners(port))
    return bool(listeners) and all(map(is_loopback, listeners))


def _listeners(port: int) -> Iterator[str]:
    for table in ("tcp", "tcp6"):  # see proc_net_tcp.txt of the kernel
        try:
            with open(f"/proc/thread-self/net/{table}") as file:
                rows = [row.split() for row in file][1:]
        except FileNotFoundError:  # no IPv6
            continue
        for row in rows:
            address, at = row[1].split(":")
            if int(at, 16) == port and row[3] == "0A":
                words = [int(address[i : i + 8], 16) for i in range(0, len(address), 8)]
                yield str(ipaddress.ip_address(struct.pack(f"={len(words)}I", *words)))


def _of_interfaces() -> Iterator[str]:
    found = interfaces.addresses().values()
    return (address for address in found if not is_loopback(address))


# -- listening -----------------------------------------------------------------------


def bind(
    sock: zmq.Socket[Any], host: str, port: int | None, ports: Sequence[int] | None
) -> int:
    """Listen on `port`, on the first free one of `ports`, or on any; which one it is.

    Raises:
      MooError: the port is taken, or all are, or the host has no such address.
    """
    if host != EVERY and not is_numeric(host):
        raise MooError(
            f"cannot listen on {host!r}: give a numeric address of this host, or * for "
            "all of its addresses"
        )
    if ":" in host or (host == EVERY and has_ipv6()):
        sock.setsockopt(zmq.IPV6, 1)
    wanted: Sequence[int | str] = [port] if port else ports or [EVERY]
    for candidate in wanted:
        try:
            sock.bind(form(host, candidate))
        except zmq.ZMQError as error:
            if error.errno != errno.EADDRINUSE:
                raise MooError(_refusal(host, candidate, error)) from None
        else:
            return _port_of(sock)
    raise MooError(_all_taken(host, port, ports))


def _port_of(sock: zmq.Socket[Any]) -> int:
    endpoint = sock.getsockopt(zmq.LAST_ENDPOINT)
    assert isinstance(endpoint, bytes)
    return int(endpoint.rstrip(b"\0").rpartition(b":")[2])


def _refusal(host: str, port: object, error: zmq.ZMQError) -> str:
    if error.errno in (errno.EADDRNOTAVAIL, errno.ENODEV):
        return (
            f"cannot listen on {host}: this host has no such address; "
            "`ip -brief address` shows those that it has"
        )
    return f"cannot listen on port {port} of {host}: {error.strerror}"


def _all_taken(host: str, port: int | None, ports: Sequence[int] | None) -> str:
    if port or not ports:
        return (
            f"cannot listen on port {port} of {host}: another program does; if that is "
            "a broker, `mooactor status` shows what it knows; for another port there "
            "is `mooactor broker --listen :PORT`"
        )
    return ports_taken(host, (min(ports), max(ports)))


# -- host names ----------------------------------------------------------------------


def look_up(
    host: str, port: int, found: Callable[[list[str]], None]
) -> threading.Thread:
    """Call `found` with the numeric hosts that a name stands for, in another thread:
    a name server may take its time. The list is empty if there are none."""

    def work() -> None:
        try:
            answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            answers = []
        found(list(dict.fromkeys(str(answer[4][0]) for answer in answers)))

    thread = threading.Thread(target=work, name="mooactor-names", daemon=True)
    thread.start()
    return thread
