# SPDX-License-Identifier: MIT
"""The agent of `mooactor host`: it has no driver, and sessions of others as guests.

Invariants:

* A guest ends when the channel to its home does, and the agent goes on.
* A session has one open guest at most. A home opens another channel when it has given
  the first one up. An agent that stood still may see the second one open before it has
  noticed that; it closes the older guest then.
* All guests reserve from one account, the host's.
* The agent's end is that of every process that it has started: they hold its
  lifelines, and the kernel kills them with it. Their directories are removed, and what
  they had started by other means is killed, by the agent, or by its janitor.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from mooactor.control.channel import Channel
from mooactor.control.node import Node
from mooactor.control.reach import Reach, listening
from mooactor.host import leftovers
from mooactor.host.agent import kill_children
from mooactor.host.eventloop import EventLoop
from mooactor.host.guest import FromHome, Guest
from mooactor.host.members import FAREWELL, Row, versions
from mooactor.host.membership import Membership
from mooactor.host.resources import Resources
from mooactor.host.site import Reaper
from mooactor.process import files
from mooactor.process.system import MOUNT_PROC, adopt_orphans, why_no_proc


@dataclass
class Offer:
    """This host's offer, and its address."""

    name: str
    brokers: list[str]
    secret: bytes = field(repr=False)
    reach: Reach
    cpus: int | None = None  # None: all that this process may use; likewise below
    gpus: int | None = None
    memory: int | None = None
    labels: dict[str, str] = field(default_factory=dict)


class BrokerNews(Protocol):
    """See `Membership`, which tells these."""

    def joined(self, broker: str, notes: list[str]) -> None: ...
    def refused(self, broker: str, why: str, hopeless: bool) -> None: ...
    def lost(self, broker: str, why: str) -> None: ...


class HostDaemon:
    """One host of a cluster. `loop` is the command's, which also has its signals."""

    def __init__(
        self,
        offer: Offer,
        loop: EventLoop,
        news: BrokerNews,
        stop: Callable[[], None],
    ) -> None:
        """`news` is told of the brokers; `stop` has the command end.

        Raises:
          OSError: there is no address to listen on, or no /proc.
          ValueError: the offer is more than there is.
        """
        self.offer = offer
        self.loop = loop
        self._stop = stop
        if (why := why_no_proc()) is not None:
            raise OSError(f"this machine cannot be a host: {why}; {MOUNT_PROC}")
        adopt_orphans()
        files.raise_limit()
        self._janitor = leftovers.start(leftovers.AGENT)
        self.resources = Resources.of_this_host(
            cpus=offer.cpus, gpus=offer.gpus, memory=offer.memory
        )
        self.reaper = Reaper(loop)
        self._guests: set[Guest] = set()
        self._announced = 0  # of the changes of what is reserved
        self.node = Node(offer.secret, **listening(offer.reach))
        self.node.accept = self._accept
        self._membership = Membership(
            self.node,
            offer.brokers,
            self._announcement,
            loop.later,
            watch=False,
            on_joined=news.joined,
            on_refused=news.refused,
            on_lost=news.lost,
        )

    def report(self) -> Iterator[str]:
        """For SIGUSR1: the sessions here."""
        for guest in list(self._guests):
            yield f"session {guest.mark}: {len(guest)} processes"

    # -- the cluster ---------------------------------------------------------

    def _announcement(self) -> Row:
        total = self.resources.total
        free = total - self.resources.reserved()
        return Row(
            name=self.offer.name,
            id=self.node.id.hex(),
            address=self.node.address,
            kind="host",
            cpus=int(total.cpus),
            gpus=int(total.gpus),
            memory=int(total.memory),
            labels=self.offer.labels,
            free=free.shown(),
            versions=versions(),
            sessions=sorted(guest.mark for guest in self._guests if guest.mark),
            actors=sum(map(len, self._guests)),
            shares=self.resources.devices.free,
            reserved=self.resources.by_session(),
        )

    # -- sessions ------------------------------------------------------------

    def _accept(self, channel: Channel) -> FromHome:
        guest = Guest(self, channel)
        self._guests.add(guest)
        return FromHome(guest, self._stop)

    def no_room(self) -> str | None:
        """Why this agent can have no more processes. It has descriptors of each."""
        processes = sum(map(len, self._guests))
        if processes < files.capacity(files.descriptor_limit()):
            return None
        return files.no_room(f"host {self.offer.name}", processes)

    def opens(self, guest: Guest, mark: str) -> None:
        """A home opens its session, of that mark, in `guest`: close any older one."""
        for other in self._guests - {guest}:
            if other.mark == mark:
                other.close()

    def ended(self, guest: Guest) -> None:
        self._guests.discard(guest)
        self._membership.changed()

    # -- the loop ------------------------------------------------------------

    def look(self) -> None:
        """The loop has served what there was."""
        if self.resources.changes != self._announced:
            self._announced = self.resources.changes
            self._membership.changed()

    def close(self) -> None:
        """End all sessions here, and leave nothing."""
        self._membership.close()
        for guest in list(self._guests):
            guest.close(FAREWELL)
        self.node.close()
        kill_children()  # the janitor, too; nobody puts anything anywhere after that
        files.remove_abandoned_directories()
        os.close(self._janitor)
