# SPDX-License-Identifier: MIT
"""The learner groups of a session: their memory on each host, and their masters.

Members of one host share memory, which their agent makes: one *place* of the group. A
member that may not use shared memory has a place of its own. C acts in each place for
the agent (`GroupAgent`): it gives members their slots, notices when they end, and tells
them who belongs to the group. The master of the group decides that, in the home of the
session (`GroupMaster`); to it each place is a host.

Agents and master talk in frames. `Groups`, of each host, and `Masters`, of the home,
carry these, between hosts as `GroupFrame`. Invariants:

* The frames of a place, and those for it, arrive in the order in which they were made.
  Each is taken out when the one before it has been carried, also if that one brings
  forth others.
* The number of a place is unique in the session, and never used again.
* A frame of a place that is given back, or of another host's place, is dropped.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from mooactor.control.messages import Malformed
from mooactor.host.eventloop import EventLoop, Line
from mooactor.host.protocol import GroupClosed, GroupFrame
from mooactor.host.remote import RemoteSite

if TYPE_CHECKING:
    from mooactor.host.home import Home
    from mooactor.host.site import Site
    from mooactor.tensors.collective import GroupAgent, GroupMaster

# Until a member's own place is given back: the master has heard of its end by then.
_LINGER_S = 5.0


class _Memory(NamedTuple):
    """Of one place."""

    segment: int
    agent: GroupAgent


class Groups:
    """The places of a session on this host, by number."""

    def __init__(
        self, loop: EventLoop, host: str, carry: Callable[[int, bytes], None]
    ) -> None:
        """`host`: its name, which members are told. `carry`: hand the master a frame of
        the place of that number."""
        self._loop = loop
        self._host = host
        self._carry = carry
        self._places: dict[int, _Memory] = {}

    def get(self, number: int) -> list[int]:
        """The descriptors of the place's memory and of its bell. The memory is sparse:
        address space, and pages as they are touched.

        Raises:
          OSError: the system has no such memory, or no descriptors.
        """
        if number not in self._places:
            self._places[number] = self._new(number)
        place = self._places[number]
        return [place.segment, place.agent.bell]

    def _new(self, number: int) -> _Memory:
        # C, for who needs it
        from mooactor.tensors.collective import GroupAgent, segment_bytes

        segment = os.memfd_create("mooactor-group", os.MFD_CLOEXEC)
        try:
            os.ftruncate(segment, segment_bytes())
            agent = GroupAgent(segment, number, self._host)
        except BaseException:
            os.close(segment)
            raise
        self._loop.watch(agent.fileno(), partial(self._look, number, agent))
        return _Memory(segment, agent)

    def _look(self, number: int, agent: GroupAgent) -> None:
        agent.look()
        for frame in agent.frames():
            self._carry(number, frame)

    def take(self, number: int, frame: bytes) -> None:
        """The master says that to the place.

        Raises:
          Malformed: it is no frame of a master.
        """
        if number not in self._places:
            return
        agent = self._places[number].agent
        try:
            agent.take(frame)
        except ValueError as error:
            raise Malformed(str(error)) from None
        for answer in agent.frames():
            self._carry(number, answer)

    def give_back(self, number: int) -> None:
        """Nobody is there any more."""
        place = self._places.pop(number, None)
        if place is not None:
            self._loop.unwatch(place.agent.fileno())
            place.agent.close()
            os.close(place.segment)

    def close(self) -> None:
        """Give all of them back; nobody of the session lives any more."""
        for number in list(self._places):
            self.give_back(number)


class _Place(NamedTuple):
    """Processes of this `site` with equal `share` have the place in common."""

    group: str
    site: Site | RemoteSite
    share: str | Line


class Masters:
    """Of all learner groups of a session, and the places of their members."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._masters: dict[str, GroupMaster] = {}
        self._numbers: dict[_Place, int] = {}
        self._places: dict[int, _Place] = {}
        self._count = itertools.count(1)

    def number_of(self, group: str, site: Site | RemoteSite, share: str | Line) -> int:
        """The number of that place, which is a new one for the first that asks."""
        from mooactor.tensors.collective import GroupMaster

        if group not in self._masters:
            self._masters[group] = GroupMaster()
        place = _Place(group, site, share)
        if place not in self._numbers:
            number = self._numbers[place] = next(self._count)
            self._places[number] = place
        return self._numbers[place]

    def take(self, site: Site | RemoteSite, number: int, frame: bytes) -> None:
        """The agent of that place, which is on `site`, says that to the master.

        Raises:
          Malformed: it is no frame of an agent.
        """
        place = self._places.get(number)
        if place is None or place.site is not site:
            return
        master = self._masters[place.group]
        try:
            master.take(number, frame)
        except ValueError as error:
            raise Malformed(str(error)) from None
        self._carry(master)

    def _carry(self, master: GroupMaster) -> None:
        for number, frame in master.frames():
            place = self._places.get(number)
            if place is None:
                continue
            if isinstance(place.site, RemoteSite):
                place.site.post(GroupFrame(number, frame))
            else:
                self._home.groups.take(number, frame)

    def site_closed(self, site: RemoteSite) -> None:
        """Nothing of the session runs there any more."""
        for number, place in list(self._places.items()):
            if place.site is site:
                self._lose(number)

    def line_closed(self, line: Line) -> None:
        """A process has ended, or is about to."""
        for number, place in list(self._places.items()):
            if place.share is line:
                self._home.loop.later(_LINGER_S, partial(self._give_back, number))

    def _give_back(self, number: int) -> None:
        site = self._lose(number)
        if isinstance(site, RemoteSite):
            site.post(GroupClosed(number))
        elif site is not None:
            self._home.groups.give_back(number)

    def _lose(self, number: int) -> Site | RemoteSite | None:
        """The place is no more. Returns where it was; None: it was lost before."""
        place = self._places.pop(number, None)
        if place is None:
            return None
        del self._numbers[place]
        master = self._masters[place.group]
        master.lost(number)
        self._carry(master)
        return place.site
