# SPDX-License-Identifier: MIT
"""Real processes that get mutated messages over real connections: a broker, a host's
agent, a session's agent and an actor. Each target has a bystander that must not notice.
"""

from __future__ import annotations

import contextlib
import copy
import os
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar
from unittest import mock

import msgspec

import mooactor as moo
from mooactor.control.channel import Channel
from mooactor.control.envelope import VERSION as WIRE
from mooactor.control.messages import Decoder, Message, encode
from mooactor.control.node import Node
from mooactor.host import protocol as protocol_of_agents
from mooactor.host.members import Announce, ListMembers, Members, Row, rows_of
from mooactor.host.protocol import (
    Born,
    Closed,
    Denied,
    Dying,
    Exited,
    Failed,
    GroupClosed,
    GroupFrame,
    Kill,
    Leave,
    Lost,
    Now,
    Open,
    Opened,
    OverLine,
    Preload,
    Printed,
    Printer,
    Reserve,
    Reserved,
    SessionStatus,
    Start,
    Status,
)
from mooactor.process import protocol
from mooactor.process.environment import Place
from mooactor.process.needs import Amount
from mooactor.process.protocol import Life
from mooactor.tensors.network import Network
from tests.clusters import Cluster, cluster
from tests.conftest import eventually
from tests.fuzz.mutation import changed
from tests.fuzz.parsers import ROW

_AT_A_TIME = 8
_ANSWER_S = 30.0
M = TypeVar("M", bound=Message)
ANSWERS: Decoder[Message] = Decoder(Members, SessionStatus)


def _dict(message: Message) -> dict[str, Any]:
    """Its fields, to be changed."""
    found: dict[str, Any] = msgspec.msgpack.decode(encode(message))
    return found


class Counter:
    """The bystander."""

    def __init__(self) -> None:
        self._count = 0

    def add(self) -> int:
        self._count += 1
        return self._count

    def pid(self) -> int:
        return os.getpid()


class Visitor:
    """A node with the key, and the last channel that it has opened."""

    def __init__(self, made: Cluster) -> None:
        secret = bytes.fromhex(made.key_file.read_text().strip())
        self.node = Node(secret, bind=made.network.address("d"))
        self._channel: Channel | None = None

    def handle(self, channel: Channel, data: bytes) -> None: ...

    def channel_closed(self, channel: Channel, why: str) -> None:
        if channel is self._channel:
            self._channel = None

    def channel(self, address: str) -> Channel:
        """An open one to there."""
        if self._channel is None or not self._channel.is_open:
            self._channel = self.node.connect(address, self)
        return self._channel

    def post(self, address: str, message: object) -> None:
        """Over the channel that is open, or another one."""
        self.channel(address).post(message)

    def settle(self) -> None:
        """Let the peer read all that was posted."""

        def read() -> bool:
            return self._channel is None or not self._channel.queued

        assert self.node.run_until(read, _ANSWER_S)

    def ask(self, address: str, message: Message, kind: type[M]) -> M:
        """The answer to a message that makes sense, over a channel of its own."""
        asker = _Asker()
        channel = self.node.connect(address, asker)
        channel.post(message)

        def answer() -> list[M]:
            return [one for one in asker.heard if isinstance(one, kind)]

        assert self.node.run_until(lambda: answer() or asker.closed, _ANSWER_S)
        assert not asker.closed, asker.closed
        channel.close()
        return answer()[0]

    def rows(self, broker: str) -> list[Row]:
        found = self.ask(broker, ListMembers(1), Members)
        return [row for row, _ in rows_of(found)]


class _Asker:
    def __init__(self) -> None:
        self.heard: list[Message] = []
        self.closed: list[str] = []

    def handle(self, channel: Channel, data: bytes) -> None:
        self.heard.append(ANSWERS.decode(data))

    def channel_closed(self, channel: Channel, why: str) -> None:
        self.closed.append(why)


class Peer:
    """A target in a session with a bystander on host a."""

    def __init__(self, made: Cluster) -> None:
        self.made = made
        self.visitor = Visitor(made)
        self.counter = moo.on(Counter, host="a").spawn()
        self._pid, self._count = self.counter.pid(), 0
        self.settle_home()

    def settle_home(self) -> None:
        """Find the session's agent."""
        rows = self.visitor.rows(self.made.address)
        (self.home,) = [row.address for row in rows if row.kind == "home"]
        (self.host,) = [row.address for row in rows if row.name == "a"]

    def step(self, rng: random.Random) -> int:
        for _ in range(_AT_A_TIME):
            self.case(rng)
        self.visitor.settle()
        return _AT_A_TIME

    def case(self, rng: random.Random) -> None:
        """Send one."""
        raise AssertionError("a target has its own")

    def check(self) -> None:
        """The bystander, and all that serve it, are as they were."""
        for program in (self.made.broker, *self.made.members.values()):
            assert program is not None and program.process.poll() is None, program
            assert "Traceback" not in "".join(program.lines), program
        self._count += 1
        assert self.counter.add.options(timeout=_ANSWER_S)() == self._count
        assert self.counter.pid() == self._pid
        fresh = moo.on(Counter, host="a").spawn()
        assert fresh.add.options(timeout=_ANSWER_S)() == 1
        moo.kill(fresh)
        assert self.visitor.ask(self.home, Status(), SessionStatus).actors

    def close(self) -> None:
        self.visitor.node.close()


class ToBroker(Peer):
    """Messages of members, of stand-bys and of commands."""

    def case(self, rng: random.Random) -> None:
        row = {**copy.deepcopy(ROW), "name": f"x{rng.randrange(20)}"}
        row["versions"]["wire"] = WIRE
        messages: tuple[dict[str, Any], ...] = (
            {"type": "Announce", "row": encode(changed(rng, row)), "load": 1.0},
            {"type": "Still"},
            {"type": "ListMembers", "rid": 3},
            {"type": "Watch"},
            {"type": "StandBy", "address": "tcp://10.77.0.1:9"},
        )
        message = changed(rng, rng.choice(messages))
        if message.get("type") != "Stop":
            self.visitor.post(self.made.address, message)
        if rng.random() < 0.01 and self.visitor.channel(self.made.address).is_open:
            self.visitor.channel(self.made.address).close()


class ToDesk(Peer):
    """Requests of commands to a session's agent."""

    def case(self, rng: random.Random) -> None:
        messages: tuple[dict[str, Any], ...] = (
            {"type": "Status"},
            {"type": "Logs", "name": "Counter", "follow": rng.random() < 0.5},
        )
        message = changed(rng, rng.choice(messages))
        if message.get("type") != "Stop":
            self.visitor.post(self.home, message)


class ToHost(Peer):
    """Messages of another session's agent to a host's."""

    def case(self, rng: random.Random) -> None:
        good = rng.random() < 0.3
        opens = OPEN if good else changed(rng, OPEN)
        self.tell(opens, changed(rng, rng.choice(TO_GUEST)))

    def tell(self, opens: dict[str, Any], message: dict[str, Any]) -> None:
        """Post a message, behind `opens` if the channel is new."""
        if not self._has_opened(self.visitor.channel(self.host)):
            self.visitor.post(self.host, opens)
        if message.get("type") != "Stop":
            self.visitor.post(self.host, message)

    _opened: Channel | None = None

    def _has_opened(self, channel: Channel) -> bool:
        before, self._opened = self._opened, channel
        return before is channel


class ToHome(Peer):
    """Messages of a host's agent to a session's, which has asked it for a process."""

    def __init__(self, made: Cluster) -> None:
        super().__init__(made)
        self.visitor.node.accept = self._accept
        self._starts: list[tuple[Channel, Start]] = []
        self._announced = self._tries = 0

    def _accept(self, channel: Channel) -> ToHome:
        return self

    def handle(self, channel: Channel, data: bytes) -> None:
        message = protocol_of_agents.TO_GUEST.decode(data)
        if isinstance(message, Start):
            self._starts.append((channel, message))

    def channel_closed(self, channel: Channel, why: str) -> None: ...

    def step(self, rng: random.Random) -> int:
        """Announce a host, have an actor placed there, and answer."""
        node, self._tries = self.visitor.node, self._tries + 1
        name = f"x{self._tries}"
        row = {**copy.deepcopy(ROW), "name": name, "id": node.id.hex()}
        row |= {"address": node.address, "reserved": {}}
        row["versions"]["wire"] = WIRE
        self.visitor.post(self.made.address, Announce(encode(row)))
        self.visitor.settle()
        self._starts.clear()
        while not any(one["name"] == name for one in moo.hosts()):
            node.run_until(lambda: False, 0.005)
        handle = moo.on(Counter, host=name, detached=True).spawn()
        assert node.run_until(lambda: self._starts, _ANSWER_S)
        channel, start = self._starts[0]
        cases = 0
        for _ in range(20):
            if not channel.is_open:
                break
            message = copy.deepcopy(rng.choice(TO_HOME))
            if "number" in message:
                message["number"] = start.number
            channel.post(changed(rng, message))
            cases += 1
            node.run_until(lambda: False, 0.001)
        handle.add.tell()
        if channel.is_open:
            channel.close("enough")
        node.run_until(lambda: not channel.is_open, 0.05)
        moo.kill(handle)
        return cases


_LIFE = Life(
    1 << 16,
    0,
    "Odd",
    {},
    1,
    b"",
    b"k" * 16,
    None,
    Network(),
    payload=b"no parcel",
)


def _said(message: Message, parcels: Sequence[bytes] = ()) -> OverLine:
    """To a process, or of one."""
    return OverLine(1, encode(message), False, None, list(parcels))


_PLACE = Place(os.fsencode(os.getcwd()), list(map(os.fsencode, sys.path[1:])))
OPEN = _dict(Open("another", _PLACE, os.fsencode(sys.executable), [b"x"], []))
TO_GUEST = [
    _dict(message)
    for message in (
        Start(1, _LIFE, 1 << 16, Amount(), 0, []),
        _said(protocol.Reply(1), [b"x"]),
        OverLine(1, encode(protocol.Reply(1, True)), False, 1, []),
        GroupFrame(1, bytes(40)),
        GroupClosed(1),
        OverLine(1, encode(protocol.Stop()), True, None, []),
        Closed(1),
        Kill(1),
        Reserve(1, [1 << 16, 2 << 16], Amount(0.5)),
        Leave(1 << 16),
        Preload(["json"]),
        Now(1 << 16, 3),
    )
]
TO_HOME = [
    _dict(message)
    for message in (
        Opened(files=1024),
        Born(1, 4, [0], "0"),
        Failed(1, "no"),
        Reserved(1, ""),
        Denied(1, "no"),
        _said(protocol.Ready()),
        _said(protocol.ListActors(rid=1)),
        _said(protocol.Reachable("tcp://10.0.0.5:1", b"")),
        _said(protocol.Snapshot(), [b"x"]),
        _said(protocol.Locate(1 << 16)),
        _said(protocol.Survey(1, 0, 1)),
        _said(protocol.Segment("g", "", rid=2)),
        GroupFrame(1, bytes(40)),
        Lost(1),
        Closed(1),
        Dying(1),
        Exited(1, 9, ["x"], False),
        Printed(1, Printer("X", 1), b"said\n\nso"),
    )
]


@contextlib.contextmanager
def _peer(kind: Callable[[Cluster], Peer], **options: Any) -> Iterator[Peer]:
    with cluster("a") as made, made.network.inside("d"):
        environment = {**made.environment("d"), "MOOACTOR_HOST_NAME": "d"}
        with mock.patch.dict(os.environ, environment):
            with moo.init(made.address, local=False, logs=False, **options):
                peer = kind(made)
                try:
                    yield peer
                finally:
                    peer.close()
            assert eventually(
                lambda: made.broker and made.broker.process.poll() is None
            )


def target_of(kind: Callable[[Cluster], Peer], **options: Any) -> Any:
    """The target in a session with these options of `moo.init`."""
    return lambda: _peer(kind, **options)


TARGETS: dict[str, Callable[[], contextlib.AbstractContextManager[Peer]]] = {
    "broker": target_of(ToBroker),
    "desk": target_of(ToDesk),
    "host": target_of(ToHost),
    "home": target_of(ToHome),
}
