# SPDX-License-Identifier: MIT
"""Mutated messages between the homes of two sessions of a namespace, both ways.

One home is real, with a session that must not notice; the other is `OtherHome`.
"""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable
from typing import Any

import mooactor as moo
from mooactor.control import plain
from mooactor.process.current import current_runtime
from mooactor.process.exits import ExitRecord
from tests.clusters import Cluster
from tests.fuzz.mutation import changed
from tests.fuzz.peers import Counter, Peer, target_of
from tests.host.homes import OtherHome

NAMESPACE = "shared"
THEIRS = 0x1234 << 16  # an actor that the other home says to have
_AT_A_TIME = 8


class Pair(Peer):
    """The real home and the other one, each a neighbor of the other."""

    def __init__(self, made: Cluster) -> None:
        super().__init__(made)
        self.other = Owner(made)

    def close(self) -> None:
        self.other.close()
        super().close()

    def meet(self) -> None:
        """Have them be neighbors, also after one has closed the channel."""
        if self.other.closed is not None or self.other.channel is None:
            self.other.visit(self.home, NAMESPACE)
            self.other.await_told()

    def check(self) -> None:
        super().check()
        self.meet()
        self.other.channel.close()  # type: ignore[union-attr]
        self.other.channel = None


class Owner(OtherHome):
    """It says to have every actor that it is asked for, and no name."""

    def handle(self, channel: Any, message: dict[str, Any]) -> None:
        if message.get("op") != "poll" or channel is self.channel:
            super().handle(channel, message)
            return
        value = True if message["about"] == "actor" else None
        channel.post({"ev": "answer", "number": message["number"], "value": value})


class ToVisited(Pair):
    """What a home is asked by another one: by a neighbor, and by one that is none."""

    def __init__(self, made: Cluster) -> None:
        super().__init__(made)
        self.victim = moo.on(Counter, host="a", detached=True).spawn()

    def case(self, rng: random.Random) -> None:
        if rng.random() < 0.05:
            self._introduce(rng)
            return
        self.meet()
        self.post(changed(rng, rng.choice(self.messages())))
        self.other.wait(lambda: False, 0.001)

    def post(self, message: dict[str, Any]) -> None:
        """Post what can be sent. ``stop`` would end the session, as it should."""
        assert self.other.channel is not None
        if message.get("op") != "stop":
            with contextlib.suppress(plain.NotPlain):
                self.other.channel.post(message)

    def _introduce(self, rng: random.Random) -> None:
        """Begin with anything."""
        self.other.close()
        self.other = Owner(self.made)
        self.other.channel = self.other.node.connect(self.home, self.other)
        names = {"op": "names", "host": "x", "namespace": NAMESPACE}
        self.post(changed(rng, rng.choice([names, *self.messages()])))
        self.other.wait(lambda: self.other.closed or self.other.heard, 0.05)
        self.other.close()
        self.other = Owner(self.made)

    def messages(self) -> list[dict[str, Any]]:
        """All kinds, as a neighbor says them."""
        victim = self.victim._actor_id
        some: list[dict[str, Any]] = [
            {"op": "watch", "id": victim, "incarnation": 0},
            {"op": "locate", "id": victim},
            {"op": "monitor", "rid": 1, "id": victim, "monitor": 2},
            {"op": "unmonitor", "id": victim, "monitor": 2},
            {"op": "handle", "rid": 3, "id": victim},
            {"op": "await_end", "rid": 4, "id": victim, "stopped": 0},
            {"op": "kill", "rid": 5, "id": victim},
        ]
        about = {"line": 1, "process": THEIRS}
        return [
            *({"op": "request", **about, "message": one} for one in some),
            {"op": "names", "host": "x", "namespace": NAMESPACE},
            {"op": "poll", "number": 6, "about": "actor", "id": victim},
            {"op": "poll", "number": 7, "about": "name", "name": "x"},
            {"op": "closed", "line": 1},
        ]


class ToAsker(Pair):
    """What a neighbor says to a home, one of whose processes awaits all of that."""

    def case(self, rng: random.Random) -> None:
        self.meet()
        if rng.random() < 0.2:
            self._ask()
        assert self.other.back is not None
        message = changed(rng, rng.choice(SAID))
        _tell_lines_apart(message, self.other.asked)
        with contextlib.suppress(plain.NotPlain):
            self.other.back.post(message)
        self.other.wait(lambda: False, 0.001)

    def _ask(self) -> None:
        """Have the driver await something."""
        agent = current_runtime().agent
        agent.tell(op="watch", id=THEIRS, incarnation=0)
        agent.tell(op="locate", id=THEIRS)
        agent.tell(op="monitor", rid=_RID, id=THEIRS, monitor=_MONITOR)
        agent.tell(op="handle", rid=_RID, id=THEIRS)
        self.other.wait(lambda: False, 0.002)


_RID, _MONITOR = 1 << 40, 1 << 41


def _tell_lines_apart(message: dict[str, Any], asked: list[dict[str, Any]]) -> None:
    """Say it to the line that asked last, unless it is said to an odd one."""
    lines = [one["line"] for one in asked if one.get("op") == "request"]
    if message.get("line") == 1 and lines:
        message["line"] = lines[-1]


_RECORD = ExitRecord.follows(
    "link", "x", ExitRecord("exception", exception=b"no pickle", stderr=("a", "b"))
).plain()
_EVENT = {"ev": "event", "actor": "x", "incarnation": 1, "monitor": _MONITOR}
_SAID: list[dict[str, Any]] = [
    {"ev": "reply", "rid": _RID, "value": True},
    {"ev": "reply", "rid": _RID, "value": b"no handle", "failed": "no"},
    {"ev": "located", "id": THEIRS, "gone": True},
    {
        "ev": "located",
        "id": THEIRS,
        "host": "x",
        "address": "tcp://10.77.0.1:9",
        "endpoint": b"x" * 40,
        "same": False,
    },
    {"ev": "died", "id": THEIRS, "incarnation": 0, "record": _RECORD, "following": 1},
    {"ev": "died", "id": THEIRS, "incarnation": 1, "record": _RECORD},
    {**_EVENT, "what": "started", "record": None, "last": False},
    {**_EVENT, "what": "died", "record": _RECORD, "last": True},
    {"ev": "ended", "why": "this is a lie"},
    {"ev": "stop"},
]
SAID: list[dict[str, Any]] = [
    *({"ev": "said", "line": 1, "message": one} for one in copy.deepcopy(_SAID)),
    {"ev": "named", "name": "x", "id": THEIRS, "label": "Odd:x", "handle": b"no"},
    {"ev": "freed", "name": "x"},
    {"ev": "told"},
    {"ev": "over", "program": "p (pid 1 on host x)", "how": "p has ended"},
    {"ev": "answer", "number": 1, "value": None},
]
TARGETS: dict[str, Callable[[], contextlib.AbstractContextManager[Peer]]] = {
    "visited": target_of(ToVisited, namespace=NAMESPACE),
    "asker": target_of(ToAsker, namespace=NAMESPACE),
}
