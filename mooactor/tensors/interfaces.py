# SPDX-License-Identifier: MIT
"""Addresses to listen on, as users write them: numeric, ``*`` for all, or the name of a
network interface of this host, which stands for its address at this moment."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterator

EVERY = "*"
_SIOCGIFADDR = 0x8915
#: Of this thread's own network namespace, which is not always that of the process.
_INET6 = "/proc/thread-self/net/if_inet6"
_GLOBAL = 0  # scope: not one that needs the interface's name beside the address
_UNUSABLE = 0x08 | 0x40  # flags: another host has that address; that is not known yet
_PASSING = 0x01 | 0x20  # temporary, deprecated


def listen_address(text: str, where: str) -> str:
    """The numeric address that `text` stands for, or "*". `where` is what the user has
    set, for the message.

    Raises:
      ValueError: it stands for none.
    """
    numeric = is_numeric(text)
    if text == EVERY or (numeric and not _is_of_many(text)):
        return text
    found = addresses()
    if text in found:
        return found[text]
    what = "no interface of this host"
    if numeric:
        what = "the address of many machines, to which nobody connects"
    elif text in _names():
        what = "this interface has no address"
    known = ", ".join(f"{name} ({address})" for name, address in found.items())
    raise ValueError(
        f"{where}={text!r:.80}: {what}; give a numeric address, * for all addresses, "
        f"or an interface that has one: {known or 'there is none'}"
    )


def is_numeric(text: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, text)
        except (OSError, ValueError):
            continue
        return True
    return False


def _is_of_many(numeric: str) -> bool:
    """Whether it is a multicast address, or that of a broadcast."""
    address = ipaddress.ip_address(numeric)
    return address.is_multicast or str(address) == "255.255.255.255"


def addresses() -> dict[str, str]:
    """The interfaces of this host that have an address, each with its first of IPv4, or
    if it has none with one of IPv6."""
    found = dict(_inet6()) | dict(_inet4())
    return {name: found[name] for name in _names() if name in found}


def _names() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


def _inet4() -> Iterator[tuple[str, str]]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for name in _names():
            request = struct.pack("256s", name.encode()[:15])
            with contextlib.suppress(OSError):  # it has none
                answer = fcntl.ioctl(any_socket, _SIOCGIFADDR, request)
                yield name, socket.inet_ntoa(answer[20:24])


def _inet6() -> Iterator[tuple[str, str]]:
    """The last of an interface is the one to take: a lasting one before a passing one,
    and then the lowest, because the kernel lists them in no order."""
    found = []
    try:
        with open(_INET6) as file:
            rows = [line.split() for line in file]
    except OSError:
        return  # this machine has no IPv6
    for digits, _, _, scope, flags, name in rows:
        address = ipaddress.IPv6Address(int(digits, 16))
        state = int(flags, 16)
        is_usable = int(scope, 16) == _GLOBAL or address.is_loopback
        if is_usable and not state & _UNUSABLE:
            found.append((bool(state & _PASSING), address, name))
    for _, address, name in sorted(found, reverse=True):
        yield name, str(address)
