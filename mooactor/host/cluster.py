# SPDX-License-Identifier: MIT
"""A home's view of the cluster that its session has joined.

`join` makes it: the session's agent becomes a node, and follows the brokers.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from mooactor.control.messages import readable
from mooactor.control.node import Node
from mooactor.control.reach import listening
from mooactor.host import remote
from mooactor.host.desk import Desk
from mooactor.host.eventloop import EventLoop
from mooactor.host.home import Home
from mooactor.host.leaving import called
from mooactor.host.members import Row, versions
from mooactor.host.membership import Membership
from mooactor.host.namespaces import Namespace
from mooactor.host.placement import NoPlace
from mooactor.host.protocol import Open
from mooactor.host.remote import RemoteSite
from mooactor.process.protocol import BrokerLost, Configure, Joined, Refused


class Cluster:
    """The hosts that the broker has told of, and the way to each."""

    def __init__(
        self,
        node: Node,
        membership: Membership,
        loop: EventLoop,
        mark: str,
        news: Home,
        namespace: Namespace | None = None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        """`mark`: the session's, by which hosts account for it. `namespace`: that of
        the session. `on_close` may post last words over the node."""
        self.node = node
        self.membership = membership
        self._loop = loop
        self._mark = mark
        self._news = news
        self._namespace = namespace
        self._on_close = on_close

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
        site = RemoteSite(host, self._loop, self._news)
        channel = self.node.connect(row.address, site)
        near = remote.invitation(os.fsdecode(config.directory))
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
        if self._namespace is not None:
            self._namespace.close()
        self.membership.close()
        self.node.close()


def join(home: Home, loop: EventLoop, config: Configure) -> Cluster:
    """Join as `config.cluster` says. The driver hears ``joined`` once a broker has
    taken the announcement, or ``refused`` with the reason once one of the list has
    refused it and no other one has answered.

    Raises:
      MooError: there is no address or port to listen on.
    """
    options = config.cluster
    assert options is not None and config.reach is not None
    node = Node(options.secret, **listening(config.reach))
    namespace: Namespace | None = None
    if options.namespace is not None:
        namespace = Namespace(options.namespace, home, node)
    home.namespace = namespace

    def announcement() -> Row:
        total, free = home.sites.offer()
        return Row(
            name=home.sites.here.host,
            id=node.id.hex(),
            address=node.address,
            kind="home",
            cpus=int(total.cpus),
            gpus=int(total.gpus),
            memory=int(total.memory),
            labels={},
            free=free.shown(),
            versions=versions(),
            sessions=[config.mark],
            actors=len(home.sites.here),
            namespace=options.namespace,
        )

    def joined(address: str, notes: list[str]) -> None:
        news = Joined(address, notes)
        if namespace is None:
            home.tell_driver(news)
        else:
            namespace.when_settled(partial(home.tell_driver, news))

    def on_row(row: Row) -> None:
        home.placeless.hosts_changed()
        if namespace is not None:
            namespace.on_row(row)

    refusals: dict[str, str] = {}
    silent = set(options.addresses)  # nothing was heard of these yet

    def settle() -> None:
        if refusals and not silent:
            address, why = next(iter(refusals.items()))
            home.tell_driver(Refused(address, readable(why)))

    def refused(address: str, why: str) -> None:
        silent.discard(address)
        refusals.setdefault(address, why)
        settle()

    def lost(address: str, why: str) -> None:
        silent.discard(address)
        home.tell_driver(BrokerLost(address, readable(why)))
        settle()

    membership = Membership(
        node,
        options.addresses,
        announcement,
        loop.later,
        on_joined=joined,
        on_refused=refused,
        on_lost=lost,
        on_host=on_row,
    )
    if namespace is not None:
        namespace.membership = membership
    desk = Desk(home, config.mark, called(config.argv))
    node.accept = desk.accept
    cluster = Cluster(node, membership, loop, config.mark, home, namespace, desk.close)
    home.sites.cluster = cluster
    loop.watch(node.fileno(), node.serve)
    return cluster
