# SPDX-License-Identifier: MIT
"""A pickled value on its way to an actor's process by way of the agent.

A small one travels inside the message. A large one lies in a sealed memory file, of
which only the descriptor travels: the agent keeps that and hands it on, but neither
maps nor copies the bytes. The receiver maps the file privately, so arrays in the value
are views that are writable and copied page by page on the first write; nobody else sees
the writes.

A parcel's bytes are a head (the length of the pickle, the number of its out-of-band
buffers, the length of each), the pickle, and the buffers, each at a multiple of 64.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from mooactor import errors
from mooactor.control import codec

SMALL_BYTES = 1 << 16
_ALIGNMENT = 64
_COUNTS = struct.Struct("<QQ")
_SEALS = (
    fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
)


class Parcel(NamedTuple):
    """Either the bytes themselves or a descriptor of the file that has them."""

    data: bytes | None
    fd: int | None = None

    @property
    def fds(self) -> list[int]:
        """The descriptors to send with it: one, or none."""
        return [] if self.fd is None else [self.fd]

    def close(self) -> None:
        if self.fd is not None:
            os.close(self.fd)


def pack(value: Any, what: str) -> Parcel:
    """Encode `value`, which errors call `what`. The caller closes the parcel.

    Raises:
      OutOfMemory: there is no room for it.
      Exception: it cannot be pickled.
    """
    pickled, buffers = codec.encode(value)
    raw = [buffer.raw() for buffer in buffers]
    pieces = list(_pieces(pickled, raw))
    size = sum(map(len, pieces))
    if size <= SMALL_BYTES:
        return Parcel(b"".join(pieces))
    try:
        return Parcel(None, sealed(pieces))
    except (OSError, MemoryError) as error:
        raise errors.OutOfMemory(
            f"there is no memory for {what} ({size >> 20} MiB): {error}"
        ) from error


def _pieces(pickled: bytes, buffers: list[memoryview]) -> Iterator[Any]:
    head = _COUNTS.pack(len(pickled), len(buffers))
    head += b"".join(struct.pack("<Q", buffer.nbytes) for buffer in buffers)
    yield head
    yield pickled
    at = len(head) + len(pickled)
    for buffer in buffers:
        yield bytes(-at % _ALIGNMENT)
        yield buffer.cast("B") if buffer.nbytes else b""
        at += -at % _ALIGNMENT + buffer.nbytes


def sealed(pieces: list[Any]) -> int:
    """The descriptor of a sealed memory file with these bytes.

    Raises:
      OSError, MemoryError: there is no room for it.
    """
    fd = os.memfd_create("mooactor-parcel", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        for piece in pieces:
            rest = memoryview(piece)
            while rest:  # one write takes at most 2 GiB
                rest = rest[os.write(fd, rest) :]
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


def is_sealed(fd: int) -> bool:
    """Whether that is a file which nobody can change any more, not even in size."""
    try:
        return fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS == _SEALS
    except OSError:
        return False  # no memory file


def contents(fd: int) -> bytes | memoryview:
    """All bytes of the file; its position does not matter. Those of a sealed one are
    mapped. Others are copied: the file may become shorter, and a process that reads a
    mapping beyond the end of its file is killed.

    Raises:
      OSError: it cannot be read, or ends early.
    """
    if is_sealed(fd):
        try:
            return mapped(fd, mmap.PROT_READ)
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


def unpack(parcel: Parcel) -> Any:
    """Decode the value. The parcel may be closed afterwards; the value keeps its
    memory.

    Raises:
      ValueError: these are the bytes of no parcel.
      Exception: its unpickling raised it.
    """
    if parcel.fd is not None:
        content = mapped(parcel.fd, mmap.PROT_READ | mmap.PROT_WRITE)
    else:
        content = memoryview(bytearray(parcel.data or b""))  # arrays are writable
    pickled, buffers = split(content)
    return codec.decode(pickled, buffers=buffers)


def split(content: memoryview) -> tuple[memoryview, list[memoryview]]:
    """The pickle and the buffers of a parcel's bytes.

    Raises:
      ValueError: they are no whole parcel.
    """
    head = _COUNTS.size
    pickled, count = _COUNTS.unpack_from(content) if len(content) >= head else (0, -1)
    if not 0 <= count <= (len(content) - head) // 8:
        raise ValueError(f"{len(content)} bytes are no parcel")
    at = head + 8 * count
    ends = [(at, at := at + pickled)]
    for size in struct.unpack_from(f"<{count}Q", content, head):
        at += -at % _ALIGNMENT
        ends.append((at, at := at + size))
    if at > len(content):
        raise ValueError(f"a parcel of {at} bytes has {len(content)} of them")
    first, *rest = [content[start:end] for start, end in ends]
    return first, rest


def mapped(fd: int, protection: int) -> memoryview:
    """The bytes of a file, as private memory.

    Raises:
      OSError, ValueError: it cannot be mapped, or is empty.
    """
    options: dict[str, Any] = {} if sys.version_info < (3, 13) else {"trackfd": False}
    size = os.fstat(fd).st_size
    return memoryview(mmap.mmap(fd, size, mmap.MAP_PRIVATE, protection, **options))
