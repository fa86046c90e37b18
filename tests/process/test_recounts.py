# SPDX-License-Identifier: MIT
"""Counts of borrows under random histories of lending, giving back and breaks.

The tables, audits and recounts are real. The processes, their connections and the clock
are simulated: a connection delivers in order, each record within `LATEST_S`, and when
it breaks, all that is on its way is lost. A seed replays a history.
"""

from __future__ import annotations

import os
import random
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import pytest

from mooactor.control import bodies, envelope
from mooactor.process.objects.audit import ARRIVED_S, FORGOTTEN_S, Audit, Recounts
from mooactor.process.objects.borrow import Borrows
from mooactor.process.objects.holds import Claims, Hold, claimed
from mooactor.process.objects.table import ObjectTable

SEEDS = [int(s) for s in os.environ.get("MOOACTOR_SEEDS", "").split()] or range(40)
PROCESSES = [(number + 1) << 16 for number in range(4)]
STEPS = 400
LATEST_S = ARRIVED_S - 1.0
MESSAGE = 1000  # a kind of the test's own: a message with Refs in it
BROKEN = 1001  # the first record over the connection after one that has broken


class Node:
    """One process. It is its own sender and links."""

    def __init__(self, world: World, process_id: int) -> None:
        self.world, self.process_id = world, process_id
        self.ended = False
        self.afterwards: deque[tuple[int, int, int, bytes]] = deque()
        self.table = ObjectTable(self)  # type: ignore[arg-type]
        self.audit = Audit(self, self, self.table, world.later, True)  # type: ignore[arg-type]
        self.borrows = Borrows(
            process_id,
            self.table,
            self.audit,
            self,  # type: ignore[arg-type]
            lambda: None,
        )
        self.recounts = Recounts(
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self.table,
            self.audit,
            lambda: PROCESSES,
            world.later,
        )
        self.holds: list[Hold] = []
        self.waiting: list[Claims] = []  # messages that came, and are not decoded

    # -- as its links --------------------------------------------------------

    def watch(self, process_id: int) -> None: ...

    def is_gone(self, process_id: int) -> bool:
        return False

    # -- as its sender -------------------------------------------------------

    def post(self, target: int, kind: int, number: int, payload: bytes = b"") -> None:
        record = (kind, number, payload)
        wire = self.process_id, target
        self.world.wires[wire].append(record)
        self.world.later(LATEST_S, lambda: self.world.deliver_up_to(wire, record))

    def post_later(
        self, target: int, kind: int, number: int, payload: bytes = b""
    ) -> None:
        self.afterwards.append((target, kind, number, payload))

    def post_what_is_due(self) -> None:
        while self.afterwards:
            self.post(*self.afterwards.popleft())

    post_all_that_is_due = post_what_is_due

    # -- steps ---------------------------------------------------------------

    def put(self) -> None:
        number = self.table.new_id()
        self.table.add_stored(number, Kept())  # type: ignore[arg-type]
        self.holds.append(Hold(self.borrows, self.process_id, number, self.process_id))

    def lend(self, hold: Hold, target: int) -> None:
        self.borrows.lend(hold, target)
        lent = bodies.pack_numbers(hold.owner, hold.object_id)
        self.world.later(
            self.world.rng.random() * 0.5,  # between its count and its message
            lambda: self.post(target, MESSAGE, 0, lent),
        )

    def receive(self, sender: int, kind: int, number: int, payload: bytes) -> None:
        record: Any = envelope.Record(
            sender, 0, kind, 0, 0, number, 0.0, b"", (), payload, {}
        )
        if kind == MESSAGE:
            owner, object_id = bodies.pair(payload)
            claims = Claims(self.borrows, sender, [(owner, object_id)])
            self.waiting.append(claims.arrive())
        elif kind == BROKEN:
            self.recounts.connection_broke(sender)
        elif kind == envelope.BORROW:
            self.table.on_borrow(record)
        elif kind == envelope.RELEASE:
            self.table.on_release(record)
        else:
            self.recounts.on_record(record)

    def decode(self) -> None:
        """A message that waited is decoded, or dropped."""
        claims = self.waiting.pop(self.world.rng.randrange(len(self.waiting)))
        for hold in claims.decode(lambda: [claimed(*key) for key in claims.borrows()]):
            if self.world.rng.random() < 0.9:
                self.holds.append(hold)


class Kept:
    """The place of a stored value."""

    def close(self) -> None: ...


class World:
    """All processes, the connections between them, and the time."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.wires: dict[tuple[int, int], deque[tuple[int, int, bytes]]] = {
            (a, b): deque() for a in PROCESSES for b in PROCESSES if a != b
        }
        self.nodes = {one: Node(self, one) for one in PROCESSES}
        self.unprotected: set[tuple[int, int]] = set()  # values that lost a BORROW

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self.timers.append((self.now + seconds, action))

    def sleep(self, seconds: float) -> None:
        until = self.now + seconds
        while due := [timer for timer in self.timers if timer[0] <= until]:
            timer = min(due, key=lambda one: one[0])
            self.timers.remove(timer)
            self.now = timer[0]
            timer[1]()
        self.now = until

    def deliver(self, wire: tuple[int, int]) -> None:
        source, target = wire
        self.nodes[source].post_what_is_due()
        if self.wires[wire]:
            self.nodes[target].receive(source, *self.wires[wire].popleft())

    def deliver_up_to(
        self, wire: tuple[int, int], record: tuple[int, int, bytes]
    ) -> None:
        while any(one is record for one in self.wires[wire]):
            self.deliver(wire)

    def cut(self, wire: tuple[int, int]) -> None:
        """Records on their way are lost. The sender knows at once, the receiver by the
        first record of the next connection."""
        source, target = wire
        self.nodes[source].post_what_is_due()
        for kind, number, _ in self.wires[wire]:
            if kind == envelope.BORROW:
                self.unprotected.add((target, number))
        self.wires[wire].clear()
        self.nodes[source].post(target, BROKEN, 0)
        self.nodes[source].recounts.connection_broke(target)

    def step(self, breaks: float) -> None:
        rng, node = self.rng, self.nodes[self.rng.choice(PROCESSES)]
        choice = rng.random()
        if choice < breaks:
            self.cut(rng.choice(list(self.wires)))
        elif choice < 0.1:
            node.put()
        elif choice < 0.3 and node.holds:
            other = rng.choice([one for one in PROCESSES if one != node.process_id])
            node.lend(rng.choice(node.holds), other)
        elif choice < 0.4 and node.holds:
            node.holds.pop(rng.randrange(len(node.holds)))
        elif choice < 0.5 and node.waiting:
            node.decode()
        elif choice < 0.6:
            self.sleep(rng.random() * 0.3)
        else:
            self.deliver(rng.choice(list(self.wires)))

    def settle(self) -> None:
        """Deliver all that is on its way, and wait until nothing is to be done."""
        for _ in range(200):
            for wire in self.wires:
                while self.wires[wire]:
                    self.deliver(wire)
                self.deliver(wire)
            for node in self.nodes.values():
                node.table.sweep()
            self.sleep(0.5)
        assert not any(self.wires.values())

    def check(self) -> None:
        """Each owner's counts are the numbers of holds that there are."""
        truth: dict[tuple[int, int], Counter[tuple[int, int]]] = {}
        for node in self.nodes.values():
            claimed = [h for c in node.waiting for hs in c._holds.values() for h in hs]
            for hold in (*node.holds, *claimed):
                assert hold.lender is not None
                counts = truth.setdefault((hold.owner, hold.object_id), Counter())
                counts[node.process_id, hold.lender] += 1
        for (owner, number), counts in truth.items():
            entry = self.nodes[owner].table.entry(number)
            if entry is None:
                assert (owner, number) in self.unprotected, "it is held, and gone"
            else:
                assert entry.counts == counts, f"value {number} of {owner >> 16}"
        for node in self.nodes.values():
            for number in list(node.table._entries):
                assert (node.process_id, number) in truth, "nobody holds it"


@pytest.mark.parametrize("breaks", [0.0, 0.02, 0.06])
def test_counts_are_right_again_some_time_after_breaks(breaks: float) -> None:
    for seed in SEEDS:
        world = World(seed)
        for _ in range(STEPS):
            world.step(breaks)
        world.settle()
        world.check()
        for node in world.nodes.values():
            node.holds.clear()
            node.waiting.clear()
        world.settle()
        assert [len(node.table) for node in world.nodes.values()] == [0] * 4, seed
        world.sleep(FORGOTTEN_S)
        assert not any(node.table.doubts for node in world.nodes.values()), seed
