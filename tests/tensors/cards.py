# SPDX-License-Identifier: MIT
"""Cards taken apart and put together, the way that card.h writes them down."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass, replace

_HEAD = struct.Struct("<4sBBBBQ16sI4x")
_ADDRESS = struct.Struct("<BxH16s")
SHM, OFI, TCP = 1, 2, 4


@dataclass(frozen=True)
class Card:
    transports: int
    process: int
    host: bytes
    addresses: tuple[tuple[str, int], ...]
    rest: bytes = b""

    @classmethod
    def read(cls, card: bytes) -> Card:
        head = _HEAD.unpack_from(card)
        magic, version, transports, count, provider, process, host, endpoint = head
        assert (magic, version, provider, endpoint) == (b"MCRD", 1, 0, 0)
        addresses = []
        for n in range(count):
            family, port, ip = _ADDRESS.unpack_from(
                card, _HEAD.size + n * _ADDRESS.size
            )
            text = ipaddress.ip_address(ip[:4] if family == 4 else ip)
            addresses.append((str(text), port))
        return cls(transports, process, host, tuple(addresses))

    def changed(self, **changes: object) -> bytes:
        """The bytes of a card that differs in this."""
        card = replace(self, **changes)  # type: ignore[arg-type]
        out = _HEAD.pack(
            b"MCRD",
            1,
            card.transports,
            len(card.addresses),
            0,
            card.process,
            card.host,
            0,
        )
        for text, port in card.addresses:
            ip = ipaddress.ip_address(text)
            out += _ADDRESS.pack(ip.version, port, ip.packed.ljust(16, b"\0"))
        return out
