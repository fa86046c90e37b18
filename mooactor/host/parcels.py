# SPDX-License-Identifier: MIT
"""Parcels between hosts: the bytes of a sealed file, and a file of the same bytes."""

from __future__ import annotations

import os

from mooactor.process.parcel import sealed


def bytes_of(fd: int) -> bytes:
    """All bytes of the file; its position does not matter."""
    size = os.fstat(fd).st_size
    pieces, at = [], 0
    while at < size:
        piece = os.pread(fd, size - at, at)
        if not piece:
            raise OSError(f"a parcel of {size} bytes ends after {at}")
        pieces.append(piece)
        at += len(piece)
    return b"".join(pieces)


def file_of(data: bytes) -> int:
    """The descriptor of a sealed memory file with these bytes; the caller's."""
    return sealed([data])
