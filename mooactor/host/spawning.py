# SPDX-License-Identifier: MIT
"""Requests that make actors: `Spawn`, and `Reserve` for those that are spawned soon.

Invariant: whatever a spawn has taken, a place and a parcel, is given back if no actor
comes of it. So are places that were asked for beforehand, at the latest when the
asker's process has ended.

Several actors are placed together or not at all, by what is known here of the hosts:
other sessions reserve there, too, and a host has the last word when it is to start one.

Actors that are due to start may find no place (`Pending`): they have run before, or
are children whose supervisor has them start now, and the host that one is pinned to is
away, or all that it needs is reserved. Waiting for a place is no attempt to start: it
uses up no restart, however long it takes, and its watchers hear nothing. They are tried
again, in the order in which they came to wait, soon after a host has joined or has
changed, and now and then.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mooactor.control.keys import actor_of
from mooactor.host.eventloop import Line
from mooactor.host.lifetimes import Supervised, SupervisedState
from mooactor.host.placement import NoPlace
from mooactor.host.protocol import Refused
from mooactor.host.supervisors import Membership, team_of
from mooactor.process.exits import ExitRecord
from mooactor.process.parcel import Parcel
from mooactor.process.protocol import Request, Reserve, Spawn, Unreserve

if TYPE_CHECKING:
    from mooactor.host.home import Home


#: ``guard(line, request, action)`` does `action`; an error in it is that request's.
Guard = Callable[[Line, Request, Callable[[], None]], None]


class SpawnRequests:
    """Serves `Requests`."""

    def __init__(self, home: Home, guard: Guard) -> None:
        self._home = home
        self._guard = guard
        self._reply = home.loop.reply
        # By line: ids that it has had placed, and has not spawned or unplaced since.
        self._placed: dict[Line, set[int]] = {}

    def line_closed(self, line: Line) -> None:
        """A process is gone: what it has not spawned by now will not be."""
        self._give_back(self._placed.pop(line, ()))

    def _give_back(self, ids: Iterable[int]) -> None:
        self._home.sites.unplace([i for i in ids if i not in self._home.actors])

    def _forget(self, line: Line, ids: Iterable[int]) -> None:
        """The reservations for these are no concern of the line's any more."""
        left = self._placed.get(line, set())
        left.difference_update(ids)
        if not left:
            self._placed.pop(line, None)

    def operations(self) -> dict[type[Request], Callable[[Line, Any, list[int]], None]]:
        """The requests of the session's processes."""
        return {
            Spawn: self._spawn,
            Reserve: self._place,
            Unreserve: self._unplace,
        }

    def _spawn(self, line: Line, request: Spawn, fds: list[int]) -> None:
        home, rid = self._home, request.rid
        actor = self._new_actor(line, request, fds)

        def admit(taken_by: str | None) -> None:
            act = partial(self._admit, line, actor, rid, taken_by)
            self._guard(line, request, act)

        taken_by = None if actor.name is None else home.names.taken_by(actor.name)
        if actor.name is None or taken_by or home.namespace is None:
            admit(taken_by)
        else:
            home.namespace.claim(actor.name, admit)

    def _admit(
        self,
        line: Line,
        actor: Supervised,
        rid: int | None,
        taken_by: str | None,
    ) -> None:
        """Spawn it, unless there is no name or no room for it."""
        home = self._home
        self._forget(line, [actor.id])
        try:
            if not home.loop.is_open(line):
                return  # its spawner has ended while the name was claimed
            if taken_by is not None:
                self._reply(line, rid, None, refused="name taken", note=taken_by)
                return
            if home.is_full():
                self._turn_away(line, actor, rid, home.no_room(len(home.living)))
                return
            try:
                home.sites.ensure_place(actor.id, actor.needs)
            except NoPlace as error:
                self._turn_away(line, actor, rid, str(error))
                return
            actor.watchers.add(line)
            home.spawn(actor)
            self._reply(line, rid, True)
        finally:
            if actor.id not in home.actors:
                home.parcels.drop(actor.payload)
                home.sites.unplace([actor.id])

    def _place(self, line: Line, request: Reserve, fds: list[int]) -> None:
        """Reserve for each of several actors that will be spawned, or for none."""
        home, ids = self._home, request.ids
        taken = home.actors.keys() | filter(home.sites.is_placed, ids)
        if len(set(ids)) < len(ids) or any(i != actor_of(i) or i in taken for i in ids):
            raise Refused("there are ids of no new actors")
        try:
            home.sites.place(ids, request.needs)
        except NoPlace as error:
            self._reply(line, request.rid, None, refused="no room", note=str(error))
            return
        self._placed.setdefault(line, set()).update(ids)
        self._reply(line, request.rid, [home.sites.host_of(one) for one in ids])

    def _unplace(self, line: Line, request: Unreserve, fds: list[int]) -> None:
        """They will not be spawned after all."""
        self._forget(line, request.ids)
        self._give_back(request.ids)

    def _turn_away(
        self, line: Line, actor: Supervised, rid: int | None, why: str
    ) -> None:
        """There is no room for it. Others may have its handle already, so without a
        reply it counts as an actor that has died."""
        note = f"{actor.label} cannot be started: {why}"
        if rid is not None:
            self._reply(line, rid, None, refused="no room", note=note)
            return
        actor.watchers.add(line)
        record = ExitRecord("exception", note=note, placement=True)
        self._home.turn_away(actor, record)

    def _new_actor(self, line: Line, request: Spawn, fds: list[int]) -> Supervised:
        home, actor_id = self._home, request.id
        if actor_id != actor_of(actor_id) or actor_id in home.actors:
            raise Refused(f"{actor_id:x} is no id for a new actor")
        if home.config is None:
            raise Refused("the session is not configured yet")
        payload = home.parcels.carried(request.payload, fds)
        request.payload = None
        owner = None if request.detached else home.by_line.get(line)
        actor = Supervised(request, owner, payload)
        try:
            self._join_team(line, request, actor)
        except Refused:
            home.parcels.drop(payload)
            raise
        return actor

    def _join_team(self, line: Line, request: Spawn, actor: Supervised) -> None:
        """Make a new actor a child of the supervisor that spawns it, if its request
        says so. It does not start yet.

        Raises:
          Refused: the sender is no supervisor, or cannot have such a child.
        """
        said = request.member
        if said is None:
            return
        boss = self._home.by_line.get(line)
        if boss is None:
            raise Refused("only an actor may say that")
        team = team_of(boss)
        if request.detached:
            raise Refused("a child of a supervisor is its own, not detached")
        if said.key in team.living():
            raise Refused(f"the supervisor has a child {said.key!r:.40} already")
        actor.member = Membership(team, said.key, said.when, said.limited)


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
