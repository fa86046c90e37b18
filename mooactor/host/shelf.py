# SPDX-License-Identifier: MIT
"""The parcels that the agent keeps: constructor arguments, and snapshots."""

from __future__ import annotations

import os
from collections.abc import Sequence

from mooactor.host.protocol import Refused
from mooactor.process.parcel import Parcel


class Shelf:
    """The parcels that the agent keeps. One that arrives several times, as for the
    members of a group, is kept once."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, int], list[int]] = {}  # inode: descriptor, users

    def keep(self, data: bytes | None, fd: int | None) -> Parcel:
        """A parcel of the agent's own; `fd` stays the caller's."""
        if fd is None:
            return Parcel(data)
        inode = _inode(fd)
        entry = self._held.get(inode)
        if entry is None:
            entry = self._held[inode] = [os.dup(fd), 0]
        entry[1] += 1
        return Parcel(None, entry[0])

    def carried(self, data: bytes | None, fds: Sequence[int]) -> Parcel:
        """The parcel of a request: its bytes, or the one descriptor.

        Raises:
          Refused: it has neither, or both.
        """
        if (data is None) != (len(fds) == 1):
            raise Refused("a parcel is either bytes or one descriptor")
        return self.keep(data, fds[0] if fds else None)

    def drop(self, parcel: Parcel | None) -> None:
        """One of its users needs it no longer."""
        if parcel is None or parcel.fd is None:
            return
        inode = _inode(parcel.fd)
        entry = self._held[inode]
        entry[1] -= 1
        if not entry[1]:
            del self._held[inode]
            os.close(entry[0])

    def __len__(self) -> int:
        return len(self._held)


def _inode(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino
