# SPDX-License-Identifier: MIT
"""Messages of a broker to a member: both are in this process, and what the broker says
is mutated. Mutated frames around it: see `nodes`."""

from __future__ import annotations

import contextlib
import copy
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mooactor.control.channel import Channel
from mooactor.control.envelope import VERSION as WIRE
from mooactor.control.messages import encode
from mooactor.control.node import Node
from mooactor.host.members import TO_BROKER, Announce, AnnounceAgain, Joined, Members
from tests.cluster.clusters import Cluster
from tests.fuzz.mutation import changed, mutate
from tests.fuzz.parsers import ROW

_AT_A_TIME = 8
_ANSWER_S = 0.3  # a mutated refusal may have the member leave


class ToMember:
    """A target: a member, which comes back to its broker whatever that has said."""

    def __init__(self, directory: Path) -> None:
        self.cluster = Cluster(directory)
        broker = Node(self.cluster.key.secret)
        broker.accept = self._accept
        self.cluster.nodes.append(broker)
        self._open: Channel | None = None
        self._announced = False
        self._member = self.cluster.member("m", broker.address)

    def _accept(self, channel: Channel) -> ToMember:
        channel.post(Joined([], 2, []))
        self._open = channel
        return self

    def handle(self, channel: Channel, data: bytes) -> None:
        self._announced |= isinstance(TO_BROKER.decode(data), Announce)

    def channel_closed(self, channel: Channel, why: str) -> None:
        if channel is self._open:
            self._open = None

    def step(self, rng: random.Random) -> int:
        channel = self._joined()
        for _ in range(_AT_A_TIME):
            channel.post(changed(rng, rng.choice(_messages(rng))))
        if not self._announces(channel) and channel.is_open:
            channel.close("you do not answer")
            self._open = None
        return _AT_A_TIME

    def _joined(self) -> Channel:
        assert self.cluster.until(lambda: self._open)
        assert self._open is not None
        return self._open

    def _announces(self, channel: Channel) -> bool:
        """Whether it does so when it is asked to, after all that was said before."""
        self._announced = False
        channel.post(AnnounceAgain())
        return self.cluster.until(lambda: self._announced, _ANSWER_S)

    def check(self) -> None:
        """It knows again what is true."""
        channel = self._joined()
        for broker in self._member.membership.brokers():
            self._member.membership.lost(broker, "")
        channel.post(Members([encode({**ROW, "versions": {"wire": WIRE}})]))
        assert self.cluster.until(lambda: self._member.names() == [ROW["name"]])


def _messages(rng: random.Random) -> list[dict[str, Any]]:
    """All kinds."""
    rows = [_row(rng) for _ in range(2)]
    flag = rng.random() < 0.5
    return [
        {"type": "Joined", "brokers": [], "members": 2, "notes": ["other torch"]},
        {"type": "Refusal", "why": "there is a host of that name", "taken": flag},
        {"type": "AnnounceAgain"},
        {"type": "Brokers", "addresses": ["tcp://127.0.0.1:9"]},
        {"type": "Size", "members": 64},
        {"type": "Members", "rows": rows, "more": flag},
        {"type": "Changed", "row": rows[0]},
        {"type": "Gone", "name": "x", "id": _id(rng), "why": "it was silent"},
    ]


def _row(rng: random.Random) -> bytes:
    """Of a host or session that does not exist."""
    row = {**copy.deepcopy(ROW), "name": f"x{rng.randrange(20)}", "id": _id(rng)}
    row["versions"]["wire"] = WIRE
    row["kind"] = rng.choice(("host", "home"))
    packed = encode(changed(rng, row) if rng.random() < 0.5 else row)
    return mutate(rng, packed) if rng.random() < 0.2 else packed


def _id(rng: random.Random) -> str:
    return f"{rng.randrange(20):016x}"


@contextlib.contextmanager
def _to_member() -> Iterator[ToMember]:
    with tempfile.TemporaryDirectory() as folder:
        target = ToMember(Path(folder))
        try:
            yield target
        finally:
            target.cluster.close()


TARGETS: dict[str, Callable[[], contextlib.AbstractContextManager[ToMember]]] = {
    "member": _to_member,
}
