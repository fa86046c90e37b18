# SPDX-License-Identifier: MIT
"""Endpoints taken apart and put together, the way that endpoint.h writes them down."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass, replace

_HEAD = struct.Struct("<4sBBBBQ16sI4x")
_ADDRESS = struct.Struct("<BxH16s")
SHM, OFI, TCP = 1, 2, 4


@dataclass(frozen=True)
class Endpoint:
    transports: int
    process: int
    host: bytes
    addresses: tuple[tuple[str, int], ...]
    fabric: tuple[int, int, bytes] = (0, 0, b"")  # lengths of two names, and both

    @classmethod
    def read(cls, packed: bytes) -> Endpoint:
        head = _HEAD.unpack_from(packed)
        magic, version, transports, count, provider, process, host, address = head
        assert (magic, version) == (b"MCRD", 1)
        addresses = []
        for n in range(count):
            family, port, ip = _ADDRESS.unpack_from(
                packed, _HEAD.size + n * _ADDRESS.size
            )
            text = ipaddress.ip_address(ip[:4] if family == 4 else ip)
            addresses.append((str(text), port))
        names = packed[_HEAD.size + count * _ADDRESS.size :]
        fabric = (provider, address, names)
        return cls(transports, process, host, tuple(addresses), fabric)

    def changed(self, **changes: object) -> bytes:
        """The bytes of an endpoint that differs in this."""
        endpoint = replace(self, **changes)  # type: ignore[arg-type]
        out = _HEAD.pack(
            b"MCRD",
            1,
            endpoint.transports,
            len(endpoint.addresses),
            endpoint.fabric[0],
            endpoint.process,
            endpoint.host,
            endpoint.fabric[1],
        )
        for text, port in endpoint.addresses:
            ip = ipaddress.ip_address(text)
            out += _ADDRESS.pack(ip.version, port, ip.packed.ljust(16, b"\0"))
        return out + endpoint.fabric[2]
