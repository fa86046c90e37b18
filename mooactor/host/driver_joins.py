# SPDX-License-Identifier: MIT
"""A driver's wish to join a cluster, and its wait until that has happened."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from mooactor import errors
from mooactor.control import addresses
from mooactor.control.complaints import say
from mooactor.control.fingerprints import OTHER_KEY
from mooactor.control.keys import namespace_key, new_session_key
from mooactor.control.messages import Message
from mooactor.control.reach import Reach
from mooactor.control.secret import Key, next_step, stay_here
from mooactor.process.agent_client import AgentClient
from mooactor.process.environment import host_name
from mooactor.process.protocol import Cluster, Joined, NotJoined, Refused

if TYPE_CHECKING:
    from mooactor.host.addresses import Address

PATIENCE_S = 20.0
_SILENT_S = 2.0  # then it is said what is waited for
_UNTIL_REASON_S = 4.0  # later at most, if it is not known why none has answered


class Joining(msgspec.Struct, frozen=True):
    """Brokers, the key, and where this host listens for others."""

    addresses: list[Address]
    key: Key
    local: bool = True  # whether actors may be on the driver's host
    bind: str | None = None  # numeric, or "*"; None: the way to a broker
    ports: range | None = None  # None: any
    namespace: str | None = None  # shared with other sessions; None: its own

    def session_key(self) -> bytes:
        """The key of the processes: of the session alone, or of the namespace."""
        if self.namespace is None:
            return new_session_key()
        return namespace_key(self.key.secret, self.namespace)

    def cluster(self) -> Cluster:
        """For the agent."""
        addresses = [str(address) for address in self.addresses]
        return Cluster(addresses, self.key.secret, self.namespace)

    def reach(self) -> Reach:
        """How processes of this host can be reached from others."""
        return reach_of(self.addresses, self.bind, self.ports, local=self.key.local)


def reach_of(
    brokers: Sequence[Address],
    bind: str | None,
    ports: range | None,
    *,
    local: bool,
) -> Reach:
    """Where to listen, and the address to tell others. `local`: the key serves on this
    host alone.

    Raises:
      ActorUnavailable: there is no way to any of the brokers' addresses from here.
      AuthError: it leads beyond this host, and the key is `local`.
    """
    advertise = bind if bind not in (None, "*") else _way_to(brokers, local)
    listen = bind or advertise
    if local:
        stay_here([listen])
    ends = None if ports is None else (ports[0], ports[-1])
    return Reach(listen, advertise, host_name(), ends, local)


def _way_to(brokers: Sequence[Address], local: bool) -> str:
    """The address of this host on the way to the first broker that there is a way to:
    of one whose machine is gone, the name may be gone as well. Nothing is sent.

    Processes that come to that broker from other hosts must come here, too: also if it
    is on this one, which may well call itself 127.0.1.1.
    """
    obstacles = []
    for broker in brokers:
        try:
            source = _source_towards(broker)
        except OSError as error:
            obstacles.append(f"{broker} ({error.strerror or error})")
            continue
        others_come = not local and not addresses.is_kept_here(broker.port)
        if others_come and addresses.is_loopback(source):
            return addresses.own()
        return source
    raise errors.ActorUnavailable(
        f"there is no way to the broker at {', '.join(obstacles)}: "
        "check its address, and this host's network",
        delivered=False,
    )


def _source_towards(broker: Address) -> str:
    found = socket.getaddrinfo(broker.host, broker.port, type=socket.SOCK_DGRAM)
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])


def await_joined(agent: AgentClient, joining: Joining) -> None:
    """Return once a broker has taken this session.

    Raises:
      ActorUnavailable: none has within `PATIENCE_S`.
      AuthError, VersionMismatch: one has refused it for its key, or its version, and no
        other one answers.
      MooError: the agent cannot take part; its own reason is the message.
    """
    future = agent.joined
    names = ", ".join(map(str, joining.addresses))
    _wait(agent, names)
    said: Message | None = future.unwrap() if future.state else None
    if isinstance(said, Joined):
        for note in said.notes:
            say(f"mooactor: {note}")
        return
    if isinstance(said, NotJoined):
        raise errors.MooError(f"this session cannot join {names}: {said.why}")
    if isinstance(said, Refused):
        why, broker = said.why, said.broker
        if OTHER_KEY in why:
            step = next_step(why, joining.key)
            raise errors.AuthError(f"no way in at {broker}: {why}: {step}")
        raise errors.VersionMismatch(
            f"the broker at {broker} refuses this program: {why}"
        )
    why = _reasons(agent)
    raise errors.ActorUnavailable(
        f"no broker has answered at {names} within {PATIENCE_S:g} s{why}: "
        f"{next_step(why, joining.key)}",
        delivered=False,
    )


def _wait(agent: AgentClient, names: str) -> None:
    """Until the agent has joined, cannot join, or all patience is gone."""
    end = time.monotonic() + PATIENCE_S
    if agent.wait(agent.joined, _SILENT_S):
        return
    agent.wait(agent.broker_heard, _UNTIL_REASON_S)
    left = end - time.monotonic()
    if not agent.joined.state:
        say(
            f"mooactor: waiting for a broker at {names}{_reasons(agent)}, "
            f"for {left:.0f} s more"
        )
    agent.wait(agent.joined, left)


def _reasons(agent: AgentClient) -> str:
    """Why no broker has taken the session yet, as far as that is known."""
    news = "; ".join(agent.broker_news.values())
    return f" ({news})" if news else ""
