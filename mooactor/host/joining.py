# SPDX-License-Identifier: MIT
"""A session joins a cluster: its agent becomes a node, and follows the brokers."""

from __future__ import annotations

from functools import partial

from mooactor.control.messages import readable
from mooactor.control.node import Node
from mooactor.control.reach import listening
from mooactor.host.cluster import Cluster
from mooactor.host.desk import Desk
from mooactor.host.eventloop import EventLoop
from mooactor.host.home import Home
from mooactor.host.members import Row, versions
from mooactor.host.membership import Membership
from mooactor.host.neighbors import Neighbors
from mooactor.host.program import called
from mooactor.process.protocol import BrokerLost, Configure, Joined, Refused


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
    namespace = options.namespace
    neighbors: Neighbors | None = None
    if namespace is not None:
        host = home.sites.here.host
        process_of = home.whereabouts.process_of
        neighbors = Neighbors(namespace, host, home.names, node, loop, process_of)
    home.neighbors = neighbors

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
            namespace=namespace,
        )

    def joined(address: str, notes: list[str]) -> None:
        news = Joined(address, notes)
        if neighbors is None:
            home.tell_driver(news)
        else:
            neighbors.when_settled(partial(home.tell_driver, news))

    def on_gone(row: Row, why: str) -> None:
        if row.kind == "host" and not cluster.has(row.name):
            cluster.absent.add(row.name, why)

    def on_row(row: Row) -> None:
        if row.kind == "host":
            cluster.absent.discard(row.name)
        home.placeless.hosts_changed()
        if neighbors is not None:
            neighbors.on_row(row)

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
        on_gone=on_gone,
    )
    if neighbors is not None:
        neighbors.membership = membership
    desk = Desk(home, config.mark, called(config.argv))
    node.accept = desk.accept
    cluster = Cluster(node, membership, loop, config.mark, home, neighbors, desk.close)
    home.sites.cluster = cluster
    loop.watch(node.fileno(), node.serve)
    return cluster
