# SPDX-License-Identifier: MIT
"""Parcels between hosts: the bytes of a sealed file, and a file of the same bytes."""

from __future__ import annotations

import mmap
import os

from mooactor.process import parcel


def contents(fd: int) -> bytes | memoryview:
    """All bytes of the file; its position does not matter. Those of a sealed one are
    mapped. Others are copied: the file may become shorter, and a process that reads a
    mapping beyond the end of its file is killed.

    Raises:
      OSError: it cannot be read, or ends early.
    """
    if parcel.is_sealed(fd):
        try:
            return parcel.mapped(fd, mmap.PROT_READ)
        except (OSError, ValueError):
            pass  # it is empty, or no descriptor is left for the mapping
    return _copy(fd)


def _copy(fd: int) -> bytes:
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
    return parcel.sealed([data])
