# SPDX-License-Identifier: MIT
"""Requests that make actors: `Spawn`, and `Reserve` for those that are spawned soon.

Invariant: whatever a spawn has taken, a place and a parcel, is given back if no actor
comes of it. So are places that were asked for beforehand, at the latest when the
asker's process has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from mooactor.control.keys import actor_of
from mooactor.host.bookings import Booking
from mooactor.host.eventloop import Line
from mooactor.host.placement import NoPlace
from mooactor.host.protocol import Refused
from mooactor.host.supervised import Supervised
from mooactor.process.exits import ExitRecord
from mooactor.process.protocol import Request, Reserve, Spawn, Unreserve

if TYPE_CHECKING:
    from mooactor.host.home import Home

#: ``guard(line, request, action)`` does `action`; an error in it is that request's.
Guard = Callable[[Line, Request, Callable[[], None]], None]


class Births:
    """Serves `Requests`, as `Watching` does."""

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
        if actor.name is None or taken_by or home.neighbors is None:
            admit(taken_by)
        else:
            home.neighbors.claim(actor.name, admit)

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
                home.shelf.drop(actor.payload)
                home.sites.unplace([actor.id])

    def _place(self, line: Line, request: Reserve, fds: list[int]) -> None:
        """Reserve for each of several actors that will be spawned, or for none."""
        home, rid, ids, needs = self._home, request.rid, request.ids, request.needs
        taken = home.actors.keys() | filter(home.sites.is_placed, ids)
        if len(set(ids)) < len(ids) or any(i != actor_of(i) or i in taken for i in ids):
            raise Refused("there are ids of no new actors")
        self._placed.setdefault(line, set()).update(ids)

        def wanted() -> bool:
            return self._placed.get(line, set()).issuperset(ids)

        def answer(hosts: list[str] | None, why: str) -> None:
            if hosts is None:
                self._forget(line, ids)
                self._reply(line, rid, None, refused="no room", note=why)
            else:
                self._reply(line, rid, hosts)

        Booking(home, ids, needs, wanted, answer).choose()

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
        payload = home.shelf.carried(request.payload, fds)
        request.payload = None
        owner = None if request.detached else home.by_line.get(line)
        actor = Supervised(request, owner, payload)
        try:
            home.teams.join(line, request, actor)
        except Refused:
            home.shelf.drop(payload)
            raise
        return actor
