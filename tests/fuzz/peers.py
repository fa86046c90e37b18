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
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import mooactor as moo
from mooactor.cluster.announcement import WIRE
from mooactor.control import plain
from mooactor.control.channel import Channel
from mooactor.control.node import Node
from mooactor.host.rows import Row, unpack_all
from tests.clusters import Cluster, cluster
from tests.conftest import eventually
from tests.fuzz.mutation import changed
from tests.fuzz.parsers import ROW

_AT_A_TIME = 8
_ANSWER_S = 30.0


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
        self.heard: list[dict[str, Any]] = []

    def handle(self, channel: Channel, message: dict[str, Any]) -> None:
        self.heard.append(message)

    def channel_closed(self, channel: Channel, why: str) -> None:
        if channel is self._channel:
            self._channel = None

    def channel(self, address: str) -> Channel:
        """An open one to there."""
        if self._channel is None or not self._channel.is_open:
            self._channel = self.node.connect(address, self)
        return self._channel

    def post(self, address: str, message: dict[str, Any]) -> None:
        """Post what can be sent; the rest never gets as far as a peer."""
        with contextlib.suppress(plain.NotPlain):
            self.channel(address).post(message)

    def settle(self) -> None:
        """Let the peer read all that was posted."""

        def read() -> bool:
            return self._channel is None or not self._channel.queued

        assert self.node.run_until(read, _ANSWER_S)
        self.heard.clear()

    def ask(self, address: str, message: dict[str, Any], event: str) -> dict[str, Any]:
        """The answer to a message that makes sense, over a channel of its own."""
        asker = _Asker()
        channel = self.node.connect(address, asker)
        channel.post(message)

        def answer() -> list[dict[str, Any]]:
            return [one for one in asker.heard if one.get("ev") == event]

        assert self.node.run_until(lambda: answer() or asker.closed, _ANSWER_S)
        assert not asker.closed, asker.closed
        channel.close()
        return answer()[0]

    def rows(self, broker: str) -> list[Row]:
        found = self.ask(broker, {"op": "hosts", "rid": 1}, "hosts")
        return unpack_all(found["rows"])


class _Asker:
    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.closed: list[str] = []

    def handle(self, channel: Channel, message: dict[str, Any]) -> None:
        self.heard.append(message)

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
        (self.home,) = [row["address"] for row in rows if row["kind"] == "home"]
        (self.host,) = [row["address"] for row in rows if row["name"] == "a"]

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
        asked = self.visitor.ask(self.home, {"op": "status"}, "status")
        assert asked["actors"]

    def close(self) -> None:
        self.visitor.node.close()


class ToBroker(Peer):
    """Messages of members, of stand-bys and of commands."""

    def case(self, rng: random.Random) -> None:
        row = {**copy.deepcopy(ROW), "name": f"x{rng.randrange(20)}"}
        row["versions"]["wire"] = WIRE
        messages: tuple[dict[str, Any], ...] = (
            {"op": "announce", **row},
            {"op": "still"},
            {"op": "hosts", "rid": 3},
            {"op": "watch"},
            {"op": "standby", "address": "tcp://10.77.0.1:9"},
        )
        message = changed(rng, rng.choice(messages))
        if message.get("op") != "stop":
            self.visitor.post(self.made.address, message)
        if rng.random() < 0.01 and self.visitor.channel(self.made.address).is_open:
            self.visitor.channel(self.made.address).close()


class ToDesk(Peer):
    """What commands ask of a session's agent."""

    def case(self, rng: random.Random) -> None:
        messages: tuple[dict[str, Any], ...] = (
            {"op": "status"},
            {"op": "logs", "name": "Counter", "follow": rng.random() < 0.5},
        )
        message = changed(rng, rng.choice(messages))
        if message.get("op") != "stop":
            self.visitor.post(self.home, message)


class ToHost(Peer):
    """What the agent of another session says to a host's."""

    def case(self, rng: random.Random) -> None:
        good = rng.random() < 0.3
        opens = OPEN if good else changed(rng, OPEN)
        self.tell(opens, changed(rng, rng.choice(TO_GUEST)))

    def tell(self, opens: dict[str, Any], message: dict[str, Any]) -> None:
        """Post a message, behind `opens` if the channel is new."""
        if not self._has_opened(self.visitor.channel(self.host)):
            self.visitor.post(self.host, opens)
        if message.get("op") != "stop":
            self.visitor.post(self.host, message)

    _opened: Channel | None = None

    def _has_opened(self, channel: Channel) -> bool:
        before, self._opened = self._opened, channel
        return before is channel


class ToHome(Peer):
    """What a host's agent says to a session's, which has asked it for a process."""

    def __init__(self, made: Cluster) -> None:
        super().__init__(made)
        self.visitor.node.accept = self._accept
        self._starts: list[tuple[Channel, dict[str, Any]]] = []
        self._announced = self._tries = 0

    def _accept(self, channel: Channel) -> ToHome:
        return self

    def handle(self, channel: Channel, message: dict[str, Any]) -> None:
        if message.get("what") == "start":
            self._starts.append((channel, message))

    def channel_closed(self, channel: Channel, why: str) -> None: ...

    def step(self, rng: random.Random) -> int:
        """Announce a host, have an actor placed there, and answer."""
        node, self._tries = self.visitor.node, self._tries + 1
        name = f"x{self._tries}"
        row = {**copy.deepcopy(ROW), "name": name, "id": node.id.hex()}
        row |= {"address": node.address, "reserved": {}}
        row["versions"]["wire"] = WIRE
        self.visitor.post(self.made.address, {"op": "announce", **row})
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
            message["number"] = start["number"]
            with contextlib.suppress(plain.NotPlain):
                channel.post(changed(rng, message))
            cases += 1
            node.run_until(lambda: False, 0.001)
        handle.add.tell()
        if channel.is_open:
            channel.close("enough")
        node.run_until(lambda: not channel.is_open, 0.05)
        moo.kill(handle)
        return cases


_LIFE: dict[str, Any] = {
    "directory": "",
    "key": b"k" * 16,
    "actor_id": 1 << 16,
    "incarnation": 0,
    "memory_limit": None,
    "network": {},
    "env": {},
    "threads": 1,
    "place": None,
    "name": None,
    "stream": None,
    "seed": None,
    "namesakes": 0,
    "label": "Odd",
    "policy": None,
    "payload": b"no parcel",
    "snapshot": None,
    "carried": [],
    "reach": {},
}
OPEN: dict[str, Any] = {
    "what": "open",
    "session": "another",
    "place": {"cwd": os.getcwd(), "path": sys.path[1:]},
    "python": sys.executable,
    "argv": ["x"],
    "preload": [],
}
TO_GUEST: list[dict[str, Any]] = [
    {
        "what": "start",
        "number": 1,
        "life": _LIFE,
        "parcels": [],
        "tries": 0,
        "holder": 1 << 16,
        "needs": {"cpus": 0.0, "gpus": 0.0, "memory": 0.0},
    },
    {
        "what": "line",
        "number": 1,
        "message": {"ev": "reply", "rid": 1, "value": None},
        "parcels": [b"x"],
    },
    {
        "what": "line",
        "number": 1,
        "message": {"ev": "reply", "rid": 1, "value": True, "segment": ["g", 4096]},
    },
    *({"what": what, "number": 1} for what in ("closed", "kill", "disown")),
    {
        "what": "reserve",
        "number": 1,
        "holders": [1 << 16, 2 << 16],
        "needs": {"cpus": 0.5, "gpus": 0.0, "memory": 0.0},
    },
    {"what": "leave", "holder": 1 << 16},
    {"what": "preload", "modules": ["json"]},
    {"what": "now", "id": 1 << 16, "incarnation": 3},
]
TO_HOME: list[dict[str, Any]] = [
    {"what": "opened", "why": "", "near": False, "files": 1024},
    {"what": "born", "number": 1, "pid": 4, "cores": [0], "devices": "0"},
    {"what": "failed", "number": 1, "note": "no"},
    {"what": "reserved", "number": 1, "note": ""},
    {"what": "denied", "number": 1, "note": "no"},
    {"what": "line", "number": 1, "message": {"op": "ready"}},
    {"what": "line", "number": 1, "message": {"op": "list", "rid": 1}},
    {
        "what": "line",
        "number": 1,
        "message": {"op": "reachable", "address": "tcp://10.0.0.5:1", "endpoint": b""},
    },
    {"what": "line", "number": 1, "message": {"op": "snapshot"}, "parcels": [b"x"]},
    {"what": "line", "number": 1, "message": {"op": "locate", "id": 1 << 16}},
    {
        "what": "line",
        "number": 1,
        "message": {"op": "survey", "number": 1, "mailbox": 0, "memory": 1},
    },
    *({"what": what, "number": 1} for what in ("lost", "closed", "dying")),
    {"what": "exited", "number": 1, "status": 9, "stderr": ["x"], "oom": False},
    {"what": "log", "stream": 1, "prefix": b"(X pid=1) ", "lines": b"said\n\nso"},
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
