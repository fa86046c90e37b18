# SPDX-License-Identifier: MIT
"""A home's view of the cluster that its session has joined."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from mooactor.control.node import Node
from mooactor.host import machine
from mooactor.host.eventloop import EventLoop
from mooactor.host.leaving import Absent
from mooactor.host.members import Row
from mooactor.host.membership import Membership
from mooactor.host.neighbors import Neighbors
from mooactor.host.placement import NoPlace
from mooactor.host.protocol import Open
from mooactor.host.remote import News, RemoteSite
from mooactor.process.needs import Amount
from mooactor.process.protocol import Configure


class Offer(NamedTuple):
    """What a host has for a session, by its last announcement.

    Args:
      free: what other sessions leave of the total.
      labels: the user's.
      mine: what the session has reserved there, as far as the host knew.
      shares: what of each of its GPUs was free then; None: it does not say.
    """

    name: str
    total: Amount
    free: Amount
    labels: dict[str, str]
    mine: Amount = Amount()
    shares: Sequence[float] | None = None


class Cluster:
    """The hosts that the broker has told of, and the way to each."""

    def __init__(
        self,
        node: Node,
        membership: Membership,
        loop: EventLoop,
        mark: str,
        news: News,
        neighbors: Neighbors | None = None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        """`mark`: the session's, by which hosts account for it. `neighbors`: the other
        sessions of its namespace. `on_close` may post last words over the node."""
        self.node = node
        self.membership = membership
        self._loop = loop
        self._mark = mark
        self._news = news
        self._neighbors = neighbors
        self._on_close = on_close
        self.absent = Absent()  # see `joining`

    def rows(self) -> list[Row]:
        """The announcement of each host that takes actors of any session."""
        return list(self.membership.hosts.values())

    def addresses(self, own: str) -> dict[str, str]:
        """Of each host's agent. `own`: this host's name, which a `mooactor host` may
        have as well."""
        others = {row.name: row.address for row in self.rows()}
        return {own: self.node.address, **others}

    def has(self, host: str) -> bool:
        """Whether a `mooactor host` of that name is there."""
        return host in self.membership.hosts

    def offers(self) -> Iterator[Offer]:
        """Those of all hosts."""
        for row in self.rows():
            others = mine = Amount()
            for session, amount in row.reserved.items():
                if session == self._mark:
                    mine = amount
                else:
                    others += amount
            free = row.total - others
            yield Offer(row.name, row.total, free, row.labels, mine, row.shares)

    def open(self, host: str, config: Configure) -> RemoteSite:
        """Have a host take part in the session.

        Raises:
          NoPlace: it is gone.
        """
        row = self.membership.hosts.get(host)
        if row is None:
            raise NoPlace(f"host {host} has left the cluster")
        site = RemoteSite(host, self._loop, self._news)
        channel = self.node.connect(row.address, site)
        near = machine.invitation(os.fsdecode(config.directory))
        about = (config.place, config.python, config.argv, config.preload)
        site.open(channel, Open(self._mark, *about, near))
        return site

    def after_round(self) -> None:
        """The loop has served what there was."""
        due = self.node.due()
        if due is not None and due <= self.node.clock.now():
            self.node.serve()

    def close(self) -> None:
        """Leave it."""
        self._on_close()
        if self._neighbors is not None:
            self._neighbors.close()
        self.membership.close()
        self.node.close()
