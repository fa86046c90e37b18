# SPDX-License-Identifier: MIT
"""What a descriptor says of itself; cext/core/wire.h has its layout."""

from __future__ import annotations


def length_of(descriptor: bytes) -> int:
    """Bytes that it stands for."""
    return int.from_bytes(descriptor[24:32], "little")


def owner_of(descriptor: bytes) -> int:
    """The process whose memory it stands for."""
    return int.from_bytes(descriptor[8:16], "little")
