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
    fabric: tuple[int, int, bytes] = (0, 0, b"")  # lengths of two names, and both

    @classmethod
    def read(cls, card: bytes) -> Card:
        head = _HEAD.unpack_from(card)
        magic, version, transports, count, provider, process, host, endpoint = head
        assert (magic, version) == (b"MCRD", 1)
        addresses = []
        for n in range(count):
            family, port, ip = _ADDRESS.unpack_from(
                card, _HEAD.size + n * _ADDRESS.size
            )
            text = ipaddress.ip_address(ip[:4] if family == 4 else ip)
            addresses.append((str(text), port))
        names = card[_HEAD.size + count * _ADDRESS.size :]
        fabric = (provider, endpoint, names)
        return cls(transports, process, host, tuple(addresses), fabric)

    def changed(self, **changes: object) -> bytes:
        """The bytes of a card that differs in this."""
        card = replace(self, **changes)  # type: ignore[arg-type]
        out = _HEAD.pack(
            b"MCRD",
            1,
            card.transports,
            len(card.addresses),
            card.fabric[0],
            card.process,
            card.host,
            card.fabric[1],
        )
        for text, port in card.addresses:
            ip = ipaddress.ip_address(text)
            out += _ADDRESS.pack(ip.version, port, ip.packed.ljust(16, b"\0"))
        return out + card.fabric[2]
