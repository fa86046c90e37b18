# SPDX-License-Identifier: MIT
"""The cluster that a session has joined, as its home sees it.

The session's agent becomes a node, and follows the brokers.
"""

from __future__ import annotations

import os
from functools import partial

from mooactor.control.messages import readable
from mooactor.control.node import Node
from mooactor.control.reach import listening
from mooactor.host import remote
from mooactor.host.desk import Desk
from mooactor.host.eventloop import EventLoop
from mooactor.host.home import Home, called
from mooactor.host.members import Row, versions
from mooactor.host.membership import Membership
from mooactor.host.namespaces import Namespace
from mooactor.host.placement import NoPlace
from mooactor.host.protocol import Open
from mooactor.host.remote import RemoteSite
from mooactor.process.protocol import BrokerLost, Configure, Joined, Refused


class Cluster:
    """The hosts that the broker has told of, and the way to each."""

    def __init__(self, home: Home, loop: EventLoop, config: Configure) -> None:
        """Join as `config.cluster` says. The driver hears ``joined`` once a broker has
        taken the announcement, or ``refused`` with the reason once one of the list has
        refused it and no other one has answered.

        Raises:
          MooError: there is no address or port to listen on.
        """
        options = config.cluster
        assert options is not None and config.reach is not None
        self._home, self._loop, self._config = home, loop, config
        self._refusals: dict[str, str] = {}
        self._silent = set(options.addresses)  # nothing was heard of these yet
        self.node = Node(options.secret, **listening(config.reach))
        if options.namespace is not None:
            home.namespace = Namespace(options.namespace, home, self.node)
        self._desk = Desk(home, config.mark, called(config.argv))
        self.node.accept = self._desk.accept
        self.membership = Membership(
            self.node,
            options.addresses,
            self._announcement,
            loop.later,
            on_joined=self._joined,
            on_refused=self._refused,
            on_lost=self._lost,
            on_host=self._on_row,
        )
        if home.namespace is not None:
            home.namespace.membership = self.membership
        home.sites.cluster = self
        loop.serve_node(self.node)

    def _announcement(self) -> Row:
        home, config = self._home, self._config
        assert config.cluster is not None
        total, free = home.sites.offer()
        return Row(
            name=home.sites.here.host,
            id=self.node.id.hex(),
            address=self.node.address,
            kind="home",
            cpus=int(total.cpus),
            gpus=int(total.gpus),
            memory=int(total.memory),
            labels={},
            free=free.shown(),
            versions=versions(),
            sessions=[config.mark],
            actors=len(home.sites.here),
            namespace=config.cluster.namespace,
        )

    # -- brokers -----------------------------------------------------------------

    def _joined(self, address: str, notes: list[str]) -> None:
        tell = partial(self._home.tell_driver, Joined(address, notes))
        if self._home.namespace is None:
            tell()
        else:
            self._home.namespace.when_settled(tell)

    def _refused(self, address: str, why: str, hopeless: bool) -> None:
        self._refusals.setdefault(address, why)
        self._heard(address)

    def _lost(self, address: str, why: str) -> None:
        self._home.tell_driver(BrokerLost(address, readable(why)))
        self._heard(address)

    def _heard(self, address: str) -> None:
        self._silent.discard(address)
        if self._refusals and not self._silent:
            address, why = next(iter(self._refusals.items()))
            self._home.tell_driver(Refused(address, readable(why)))

    def _on_row(self, row: Row) -> None:
        self._home.pending.hosts_changed()
        if self._home.namespace is not None:
            self._home.namespace.on_row(row)

    # -- hosts -------------------------------------------------------------------

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

    def open(self, host: str, config: Configure) -> RemoteSite:
        """Have a host take part in the session.

        Raises:
          NoPlace: it is gone.
        """
        row = self.membership.hosts.get(host)
        if row is None:
            raise NoPlace(f"host {host} has left the cluster")
        site = RemoteSite(host, self._loop, self._home)
        channel = self.node.connect(row.address, site)
        near = remote.invitation(os.fsdecode(config.directory))
        about = (config.place, config.python, config.argv, config.preload)
        site.open(channel, Open(config.mark, *about, near))
        return site

    def close(self) -> None:
        """Leave it."""
        self._desk.close()
        if self._home.namespace is not None:
            self._home.namespace.close()
        self.membership.close()
        self.node.close()
