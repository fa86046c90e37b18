# SPDX-License-Identifier: MIT
"""`LoneHome`: the home of a session, with hosts that are only channels.

All is real but the processes: the test says what the driver, this host's zygote and the
other hosts' agents would say.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from typing import Any, TypeVar

from mooactor.control.channel import Channel
from mooactor.control.lifeline import Lifeline
from mooactor.control.messages import Message, encode, encode_in_parts
from mooactor.control.reliable import Data
from mooactor.host.eventloop import EventLoop, FarLine
from mooactor.host.home import Home
from mooactor.host.members import Row
from mooactor.host.output import Logs
from mooactor.host.placement import NoPlace, Sites
from mooactor.host.protocol import (
    TO_GUEST,
    Born,
    Exited,
    Open,
    OverLine,
)
from mooactor.host.remote import RemoteSite
from mooactor.host.resources import Devices, Resources
from mooactor.process.environment import Place
from mooactor.process.exits import ExitRecord
from mooactor.process.needs import Amount, Needs
from mooactor.process.protocol import NEWS, Configure, Died, Life, Request, Spawn
from mooactor.tensors.network import Network
from tests.cluster.rows import row

TOTAL = Amount(4.0, 1.0, 1e9)
M = TypeVar("M", bound=Message)


class Wire:
    """A channel to a host's agent: it keeps what is ``sent``."""

    def __init__(self) -> None:
        self.peer = b"x" * 8
        self.address = "tcp://127.0.0.1:1"
        self.queued = 0
        self.is_open = True
        self.sent: list[Message] = []

    def post(
        self, message: Message, parcels: Sequence[Data] = (), *, patient: bool = False
    ) -> None:
        data = b"".join(encode_in_parts(message, parcels))
        self.sent.append(TO_GUEST.decode(data))

    def close(self, why: str = "") -> None:
        self.is_open = False

    def of(self, kind: type[M]) -> list[M]:
        """The messages of that kind."""
        return [message for message in self.sent if isinstance(message, kind)]


class Hosts:
    """In the place of `cluster.Cluster`: the hosts ``names``, with ``total`` each."""

    def __init__(self, loop: EventLoop, news: Any, names: str) -> None:
        self.names, self.total = set(names), TOTAL
        self.silent: set[str] = set()  # those that no channel reaches from now on
        self.wires: dict[str, list[Wire]] = {}
        self._loop, self._news = loop, news

    def has(self, host: str) -> bool:
        return host in self.names

    def rows(self) -> list[Row]:
        has = self.total
        amounts = {"cpus": int(has.cpus), "gpus": int(has.gpus)}
        amounts["memory"] = int(has.memory)
        return [row(name, labels={}, **amounts) for name in sorted(self.names)]

    def addresses(self, own: str) -> dict[str, str]:
        return {}

    def open(self, host: str, config: Configure) -> RemoteSite:
        if host not in self.names:
            raise NoPlace(f"host {host} has left the cluster")
        site, wire = RemoteSite(host, self._loop, self._news), Wire()
        wire.peer = b"" if host in self.silent else wire.peer
        self.wires.setdefault(host, []).append(wire)
        opens = Open("s", config.place, config.python, [], [])
        site.open(wire, opens)  # type: ignore[arg-type]
        return site

    def close(self) -> None:
        pass


class OwnLine(FarLine):
    """Leads to a process of this host that is none."""

    def hand_on(self, message: Message, fds: Any) -> None:
        pass


class Own:
    """A process of this host, in the place of `site.LocalProcess`."""

    def __init__(self, pid: int) -> None:
        self.pid, self.line = pid, OwnLine(pid)
        self.cores: list[int] = []
        self.cuda_visible_devices = None


class Here:
    """In the place of `site.Site`: processes of this host, of which nothing runs."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.killed: list[Any] = []
        self._pids = 4242

    def configure(self, path: list[bytes], argv: list[bytes]) -> None:
        pass

    def preload(self, modules: list[str]) -> None:
        pass

    def start(self, life: Life, fds: Any) -> Any:
        self._pids += 1
        return Own(self._pids)

    def kill(self, process: Any) -> None:
        self.killed.append(process)

    def disown(self, process: Any) -> None:
        self.killed.append(process)

    def close(self) -> None:
        pass


class LoneHome:
    """A home whose driver is on host `here`, with other hosts of these names.

    ``driver`` is the driver's end of the lifeline.
    """

    def __init__(
        self, directory: Any, names: str = "b", *, here: str = "d", local: bool = False
    ) -> None:
        self.loop = EventLoop()
        agents, drivers = socket.socketpair()
        self.driver, self._line = Lifeline(drivers), Lifeline(agents)
        self._pidfd = os.pidfd_open(os.getpid())
        self.here = Here(here)
        self.resources = Resources(TOTAL, Devices(["0"]))
        self.sites = Sites(self.here, self.resources)  # type: ignore[arg-type]
        self.logs = Logs(self.loop, self._line)
        self.home = Home(self._line, self._pidfd, self.loop, self.sites, self.logs)
        self.hosts = Hosts(self.loop, self.home, names)
        self.sites.cluster = self.hosts  # type: ignore[assignment]
        self.home.configure(
            Configure(
                os.fsencode(directory),
                b"k",
                1 << 60,
                "s",
                Place(b"/", []),
                b"python",
                [],
                [],
                Network(),
                forward_logs=False,
                local=local,
                seed=1,
            )
        )

    def ask(self, request: Request, line: Any = None) -> None:
        """Have the home act on a request, of the driver's unless a line is given."""
        self.home.requests.handle(line or self._line, encode(request), [])

    def told(self) -> list[Message]:
        """All that the driver has been told since it last looked."""
        found: list[Message] = []
        while (received := self.driver.receive_nowait()) or self._line.kept:
            found += [NEWS.decode(data) for data, _ in received]
            self.loop.serve(time.monotonic())
        return found

    def died(self) -> dict[int, ExitRecord]:
        """The records of the ends that the driver has just heard of, by actor."""
        return {one.id: one.record for one in self.told() if isinstance(one, Died)}

    def request(
        self,
        number: int,
        *,
        host: str = "",
        num_cpus: float = 0.0,
        num_gpus: float = 0.0,
        **fields: Any,
    ) -> Spawn:
        """The request that spawns actor `number`."""
        needs = Needs(Amount(num_cpus, num_gpus), host)
        payload: dict[str, Any] = {"payload": b"", "needs": needs}
        return Spawn(number << 16, f"Actor {number}", b"", **{**payload, **fields})

    def spawn(self, number: int, **fields: Any) -> Any:
        """The record of actor `number`, which the driver has spawned."""
        self.ask(self.request(number, **fields))
        return self.home.actors[number << 16]

    def free_cpus(self, host: str) -> float:
        """The free CPUs there, as this home counts them."""
        return self._free(host).cpus

    def free_gpus(self, host: str) -> float:
        return self._free(host).gpus

    def _free(self, host: str) -> Amount:
        (found,) = [one for one in self.sites.candidates() if one.name == host]
        return found.free

    def site(self, host: str) -> RemoteSite:
        """The session's present part on another host."""
        return self.sites._sites[host]

    def wire(self, host: str) -> Wire:
        """The last channel to it."""
        return self.hosts.wires[host][-1]

    def hear(self, host: str, message: Message) -> None:
        """The agent there has said something."""
        wire: Any = self.wire(host)
        channel: Channel = wire
        self.site(host).handle(channel, encode(message))

    def born(self, host: str, actor: Any, pid: int = 777) -> None:
        """The process of an actor there is born."""
        self.hear(host, Born(actor.process.line.number, pid, []))

    def exits(self, host: str, actor: Any) -> None:
        """It is killed."""
        self.hear(host, Exited(actor.process.line.number, 9, [], False))

    def says(self, host: str, actor: Any, request: Request) -> None:
        """The process of an actor there makes a request."""
        number = actor.process.line.number
        self.hear(host, OverLine(number, encode(request), False, None, []))

    def lose(self, host: str) -> None:
        """Nothing is heard of a host any more."""
        wire: Any = self.wire(host)
        self.site(host).channel_closed(wire, "nothing was heard of it")

    def close(self) -> None:
        self.loop.unwatch(self._pidfd)
        self.loop.unwatch(self._line.fileno())
        os.close(self._pidfd)
        self._line.close()
        self.driver.close()
        self.logs.close()
        self.loop._selector.close()
