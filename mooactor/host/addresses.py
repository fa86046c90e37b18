# SPDX-License-Identifier: MIT
"""Addresses of brokers and hosts as users write them.

``tcp://ADDR:PORT``, or shorter: without ``tcp://``, without the port, or the port alone
as ``:PORT``. ADDR is a name, an IPv4 address, an IPv6 address (in brackets where a port
follows), or ``*`` for all addresses of this host.
`control.addresses`, which reads whole addresses, defines hosts and ports.
"""

from __future__ import annotations

from typing import NamedTuple

from mooactor.control import addresses

BROKER_PORT = 4431
_SCHEME = "tcp://"


class Address(NamedTuple):
    """An address in its parts; its text is what ZeroMQ takes."""

    host: str
    port: int

    def __str__(self) -> str:
        return addresses.form(self.host, self.port)


def parse(text: str, default_port: int = BROKER_PORT) -> Address:
    """The address that `text` means.

    Raises:
      ValueError: it means none; the message says so.
    """
    rest = text.strip().removeprefix(_SCHEME)
    host, port = _split(rest)
    known = host in ("", "*") or addresses.is_host(host)
    if not known or (port and not addresses.is_port(port)):
        raise ValueError(
            f"{text!r:.200} is no address: write ADDR:PORT, such as 10.0.0.5:4431, "
            "[fd00::5]:4431 or *:4431"
        )
    return Address(host or "*", int(port) if port else default_port)


def parse_list(text: str, default_port: int = BROKER_PORT) -> list[Address]:
    """The addresses to connect to of a list with commas: at least one, each once, in
    their order.

    Raises:
      ValueError: one of them is none, or can only be listened on.
    """
    found = list(dict.fromkeys(parse(part, default_port) for part in text.split(",")))
    for address in found:
        if address.host == "*" or not address.port:
            raise ValueError(
                f"{text!r:.200} has {address}, where one can listen but not connect: "
                "name the host and its port, such as 10.0.0.5:4431"
            )
    return found


def is_reachable(text: str) -> bool:
    """Whether this is the whole address of one port of one host: `Node.connect` takes
    it."""
    try:
        addresses.parse(text)
    except ValueError:
        return False
    return True


def _split(text: str) -> tuple[str, str]:
    """The host without brackets and the port, which may be empty."""
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")) or ":" not in host:
            return " ", ""
        return host, rest[1:]
    if text.count(":") > 1:  # an IPv6 address without a port
        return text, ""
    host, _, port = text.partition(":")
    return host if host or port else " ", port


def parse_ports(text: str) -> range:
    """The ports of ``A-B``, both included, or of a single one.

    Raises:
      ValueError: these are no ports.
    """
    first, _, last = text.partition("-")
    last = last or first
    if not all(map(addresses.is_port, (first, last))):
        raise ValueError(
            f"{text!r:.80} are no ports, for --ports or MOOACTOR_PORTS: write A-B, "
            "such as 20000-29999"
        )
    if not 0 < int(first) <= int(last):
        raise ValueError(
            f"{text!r:.80} has no port, for --ports or MOOACTOR_PORTS: write the lower "
            "one first"
        )
    return range(int(first), int(last) + 1)


def ports_text(ports: range) -> str:
    """As `parse_ports` reads it."""
    return f"{ports[0]}-{ports[-1]}"
