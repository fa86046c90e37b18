# SPDX-License-Identifier: MIT
"""The fields of a descriptor; cext/core/wire.h has its layout."""

from __future__ import annotations


def length_of(descriptor: bytes) -> int:
    """The length of its data in bytes."""
    return int.from_bytes(descriptor[24:32], "little")


def owner_of(descriptor: bytes) -> int:
    """The process that owns its memory."""
    return int.from_bytes(descriptor[8:16], "little")
