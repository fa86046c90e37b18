# SPDX-License-Identifier: MIT
"""Parcels that the agent keeps for actors, and the actors that wait for a place.

Actors that are due to start may find no place (`Pending`): they have run before, or
are children whose supervisor has them start now, and the host that one is pinned to is
away, or all that it needs is reserved. Waiting for a place is no attempt to start: it
uses up no restart, however long it takes, and its watchers hear nothing. They are tried
again, in the order in which they came to wait, soon after a host has joined or has
changed, and now and then.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from mooactor.host.lifetimes import Supervised, SupervisedState
from mooactor.host.protocol import Refused
from mooactor.process.parcel import Parcel

if TYPE_CHECKING:
    from mooactor.host.home import Home


class ParcelStore:
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


_SOON_S = 0.05  # changes within this time are looked at together
_PAUSE_S = 1.0
_AT_A_TIME = 256  # so that others are served between


class Pending:
    """Those of one session."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._waiting: dict[Supervised, None] = {}  # in order
        self._looks: set[float] = set()  # that are due, by their delay

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, actor: Supervised) -> None:
        """It has no process, and finds no place."""
        actor.state = SupervisedState.WAITING
        actor.due = True
        self._waiting[actor] = None
        self._look_in(_PAUSE_S)

    def discard(self, actor: Supervised) -> None:
        """It has a process, or is not to start now."""
        actor.due = False
        self._waiting.pop(actor, None)

    def hosts_changed(self) -> None:
        """There may be room: look soon."""
        self._look_in(_SOON_S)

    def _look_in(self, delay: float) -> None:
        if self._waiting and delay not in self._looks:
            self._looks.add(delay)
            self._home.loop.later(delay, partial(self._look, delay))

    def _look(self, delay: float) -> None:
        self._looks.discard(delay)
        for actor in list(self._waiting)[:_AT_A_TIME]:
            if actor in self._waiting:  # starting one may have ended another
                self.discard(actor)
                self._home.start(actor)
        self._look_in(_PAUSE_S)
