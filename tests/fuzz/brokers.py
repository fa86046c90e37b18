# SPDX-License-Identifier: MIT
"""Messages of brokers to their members: a session's agent and a host's, both real.

The real broker introduces stand-bys to them, as those of ``mooactor broker
--standby-of``. Here these are nodes of this process, and what they say is mutated.
Mutated frames around it: see `nodes`.
"""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mooactor as moo
from mooactor.cluster.announcement import WIRE
from mooactor.control import plain
from mooactor.control.channel import Channel
from mooactor.control.node import Node
from mooactor.host.session import current_session
from mooactor.process.system import resident_bytes
from tests.clusters import Cluster
from tests.control.nodes import together
from tests.fuzz.mutation import changed, mutate
from tests.fuzz.parsers import ROW
from tests.fuzz.peers import Peer, target_of
from tests.processes import Process

_BROKERS = 4
_AT_A_TIME = 8
# A frame may rightly be waited for: mutated ones announce more than they have.
_ANSWER_S = 0.3
_PATIENCE_S = 60.0
_GROWTH = 50e6  # bytes


class Trap:
    """Unpickling it makes a directory."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._path),)


class StandBy:
    """A broker that takes every member.

    ``open`` has the channels to members, and whether each has announced its member
    since it was last told to.
    """

    def __init__(self, made: Cluster) -> None:
        secret = bytes.fromhex(made.key_file.read_text().strip())
        self.node = Node(secret, bind=made.network.address("d"))
        self.open: dict[Channel, bool] = {}

    def listen(self) -> None:
        self.node.accept = self._accept

    def _accept(self, channel: Channel) -> StandBy:
        self.open[channel] = False
        channel.post({"ev": "joined", "brokers": [], "members": 2, "notes": []})
        return self

    def handle(self, channel: Channel, message: dict[str, Any]) -> None:
        if message.get("op") == "announce" and channel in self.open:
            self.open[channel] = True

    def channel_closed(self, channel: Channel, why: str) -> None:
        self.open.pop(channel, None)

    def ask(self) -> None:
        """Have each member announce itself, after all that was said before."""
        for channel in self.open:
            self.open[channel] = False
            channel.post({"ev": "size", "members": 2})  # also after a lie about it
            channel.post({"ev": "announce"})

    def drop(self, everybody: bool = False) -> None:
        """Close the channels to those that have not answered, or to all."""
        for channel, answered in list(self.open.items()):
            if everybody or not answered:
                channel.close("you do not answer")
                del self.open[channel]

    def leave(self) -> None:
        self.node.accept = None
        self.drop(everybody=True)


class ToMember(Peer):
    """The words of the stand-bys."""

    def __init__(self, made: Cluster) -> None:
        super().__init__(made)
        self._folder = tempfile.TemporaryDirectory()
        self._sprung = Path(self._folder.name) / "sprung"
        self._trap = pickle.dumps(Trap(self._sprung))
        self._stand_bys = [StandBy(made) for _ in range(_BROKERS)]
        session = current_session()
        assert session is not None and session._agent is not None
        self._members = [session._agent.pid, made.members["a"].pid]
        self._processes = [Process.of(pid) for pid in self._members]
        self._introductions: list[Channel] = []
        self._introduce()
        self._resident: list[int] | None = None

    def close(self) -> None:
        for one in self._stand_bys:
            one.node.close()
        self._folder.cleanup()
        super().close()

    def _introduce(self) -> None:
        """Have the real broker tell its members of the stand-bys, which these join."""
        node = self.visitor.node
        for one in self._stand_bys:
            one.listen()
            channel = node.connect(self.made.address, self.visitor)
            channel.post({"op": "standby", "address": one.node.address})
            self._introductions.append(channel)
        assert self._until(lambda: all(len(one.open) == 2 for one in self._stand_bys))

    def _withdraw(self) -> None:
        """Nobody believes them any more."""
        for one in self._stand_bys:
            one.leave()
        for channel in self._introductions:
            channel.close()
        self._introductions.clear()
        assert self._until(lambda: [row["name"] for row in moo.hosts()] == ["a"])

    def _until(self, condition: Callable[[], object], s: float = _PATIENCE_S) -> bool:
        nodes = [one.node for one in self._stand_bys]
        return together([*nodes, self.visitor.node], condition, s)

    # -- cases -----------------------------------------------------------------

    def step(self, rng: random.Random) -> int:
        """Each says some things to each member that it has just now; members come back
        whatever was said."""
        assert self._until(lambda: any(one.open for one in self._stand_bys))
        cases = sum(self._say(rng, one) for one in self._stand_bys)
        for one in self._stand_bys:
            one.ask()
        if not self._until(self._all_answered, _ANSWER_S):
            for one in self._stand_bys:
                one.drop()
        return cases

    def _all_answered(self) -> bool:
        return all(all(one.open.values()) for one in self._stand_bys)

    def _say(self, rng: random.Random, one: StandBy) -> int:
        those = list(one.open)
        for channel in those:
            for _ in range(_AT_A_TIME):
                with contextlib.suppress(plain.NotPlain):
                    channel.post(self._message(rng))
        one.node.serve()
        return _AT_A_TIME * len(those)

    def _message(self, rng: random.Random) -> dict[str, Any]:
        found = changed(rng, rng.choice(self._messages(rng)))
        if rng.random() < 0.05:
            found[rng.choice(("rows", "why", "notes"))] = self._trap
        return found

    def _messages(self, rng: random.Random) -> list[dict[str, Any]]:
        """All kinds."""
        rows = [self._row(rng) for _ in range(2)]
        flag = rng.random() < 0.5
        return [
            {"ev": "joined", "brokers": [], "members": 2, "notes": ["another torch"]},
            {"ev": "refused", "why": "there is a host of that name", "taken": flag},
            {"ev": "announce"},
            {"ev": "brokers", "addresses": ["tcp://10.77.0.1:9"]},
            {"ev": "size", "members": 64},
            {"ev": "hosts", "rows": rows, "more": flag},
            {"ev": "host", "row": rows[0]},
            {"ev": "gone", "name": "x", "id": _id(rng), "why": "it was silent"},
        ]

    def _row(self, rng: random.Random) -> bytes:
        """Of a host or session that does not exist, or a pickle."""
        if rng.random() < 0.05:
            return self._trap
        row = {**copy.deepcopy(ROW), "name": f"x{rng.randrange(20)}", "id": _id(rng)}
        row["versions"]["wire"] = WIRE
        row["kind"] = rng.choice(("host", "home"))
        packed = plain.pack(changed(rng, row) if rng.random() < 0.5 else row)
        return mutate(rng, packed) if rng.random() < 0.2 else packed

    # -- what must hold --------------------------------------------------------

    def check(self) -> None:
        """Members have neither ended nor grown, nor unpickled anything; and they know
        again what is true."""
        self._withdraw()
        super().check()
        assert all(process.is_running() for process in self._processes)
        assert not self._sprung.exists()
        now = [resident_bytes(pid) for pid in self._members]
        before = self._resident = self._resident or now
        assert all(b - a < _GROWTH for a, b in zip(before, now)), (before, now)
        self._introduce()


def _id(rng: random.Random) -> str:
    return f"{rng.randrange(20):016x}"


TARGETS: dict[str, Callable[[], contextlib.AbstractContextManager[Peer]]] = {
    "member": target_of(ToMember),
}
