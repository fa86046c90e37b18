# SPDX-License-Identifier: MIT
"""Holds under random histories of lending, giving back, breaks and deaths.

The tables and audits are real. The processes, their connections and the clock
are simulated: a connection delivers in order, each record within `LATEST_S`, and when
it breaks, all that is on its way is lost; so is a part of it when its sender dies. A
seed replays a history.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from mooactor.control import bodies, envelope
from mooactor.process.objects.audit import ARRIVED_S, INBOX_S, Audit
from mooactor.process.objects.borrow import Borrows
from mooactor.process.objects.holds import Claims, Hold, claimed
from mooactor.process.objects.table import ObjectTable
from tests.process.timers import Timers

SEEDS = [int(s) for s in os.environ.get("MOOACTOR_SEEDS", "").split()] or range(40)
PROCESSES = [(number + 1) << 16 for number in range(5)]
STEPS = 400
LATEST_S = ARRIVED_S - 1.0
MESSAGE = 1000  # a kind of the test's own: a message with Refs in it
BROKEN = 1001  # the first record over the connection after one that has broken


class Node:
    """One process. It is its own sender and links."""

    def __init__(self, world: World, process_id: int) -> None:
        self.world, self.process_id = world, process_id
        self.ended = False
        self.gone: set[int] = set()
        self.afterwards: deque[Callable[[], object]] = deque()
        self.table = ObjectTable(self)  # type: ignore[arg-type]
        self.audit = Audit(
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self.table,
            lambda: PROCESSES,
            self.do_later,
            True,
        )
        self.borrows = Borrows(
            process_id,
            self.table,
            self.audit,
            self,  # type: ignore[arg-type]
        )
        self.holds: list[Hold] = []
        self.waiting: list[Claims] = []  # messages that came, and are not decoded

    def do_later(self, seconds: float, action: Callable[[], None]) -> None:
        self.world.later(seconds, lambda: self.is_alive() and action())

    def is_alive(self) -> bool:
        return self.world.nodes.get(self.process_id) is self

    # -- as its links --------------------------------------------------------

    def watch(self, process_id: int) -> None: ...

    def is_gone(self, process_id: int) -> bool:
        return process_id in self.gone

    # -- as its sender -------------------------------------------------------

    def post(
        self,
        target: int,
        kind: int,
        number: int,
        payload: bytes = b"",
        *,
        gather: bool = False,
    ) -> None:
        record = (kind, number, payload)
        wire = self.process_id, target
        if target not in self.gone:
            self.world.wires[wire].append(record)
            self.world.later(LATEST_S, lambda: self.world.deliver_up_to(wire, record))

    def arm(self) -> None: ...

    def later(self, action: Callable[[], object]) -> None:
        self.afterwards.append(action)

    def do_what_is_due(self) -> None:
        while self.afterwards:
            self.afterwards.popleft()()

    # -- steps ---------------------------------------------------------------

    def put(self) -> None:
        self.holds.append(self.table.own(Kept(), self.borrows))  # type: ignore[arg-type]

    def lend(self, hold: Hold, target: int) -> None:
        number = self.borrows.new_number()
        self.borrows.lend(hold, target, number)
        if self.world.rng.random() < 0.1:  # the message is not sent after all
            self.borrows.give_back(hold.owner, hold.object_id, number)
            return
        lent = bodies.pack_numbers(hold.owner, hold.object_id, number)
        self.do_later(
            self.world.rng.random() * 0.5,  # between its note and its message
            lambda: self.post(target, MESSAGE, 0, lent),
        )

    def receive(self, sender: int, kind: int, number: int, payload: bytes) -> None:
        record: Any = envelope.Record(
            sender, kind, 0, 0, number, 0.0, b"", (), payload, {}
        )
        if kind == MESSAGE:
            owner, object_id, hold = bodies.numbers(payload, 3)
            claims = Claims(self.borrows, sender, hold, [(owner, object_id)])
            self.waiting.append(claims.arrive())
        elif kind == BROKEN:
            self.audit.connection_broke(sender)
        elif kind == envelope.BORROW:
            self.table.on_borrow(record)
        elif kind == envelope.RELEASE:
            self.table.on_release(record)
        elif kind == envelope.AUDIT:
            self.audit.on_audit(record)
        else:
            self.audit.on_unsure(record)

    def process_lost(self, dead: int) -> None:
        self.gone.add(dead)
        self.table.process_lost(dead)
        self.audit.lender_lost(dead)

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
        timers = Timers()
        self.later, self.sleep = timers.later, timers.sleep
        self.wires: dict[tuple[int, int], deque[tuple[int, int, bytes]]] = {
            (a, b): deque() for a in PROCESSES for b in PROCESSES if a != b
        }
        self.nodes = {one: Node(self, one) for one in PROCESSES}
        self.unprotected: set[tuple[int, int]] = set()  # values that lost a BORROW
        self.gone: list[Node] = []

    def deliver(self, wire: tuple[int, int]) -> None:
        source, target = wire
        if source in self.nodes:
            self.nodes[source].do_what_is_due()
        if self.wires[wire]:
            record = self.wires[wire].popleft()
            if target in self.nodes:
                self.nodes[target].receive(source, *record)

    def deliver_all(self, wire: tuple[int, int]) -> None:
        while self.wires[wire]:
            self.deliver(wire)

    def deliver_up_to(
        self, wire: tuple[int, int], record: tuple[int, int, bytes]
    ) -> None:
        while any(one is record for one in self.wires[wire]):
            self.deliver(wire)

    def cut(self, wire: tuple[int, int]) -> None:
        """Records on their way are lost. The sender knows at once, the receiver by the
        first record of the next connection."""
        source, target = wire
        if source not in self.nodes or target in self.nodes[source].gone:
            return
        self.nodes[source].do_what_is_due()
        self.lose(wire)
        self.nodes[source].post(target, BROKEN, 0)
        self.nodes[source].audit.connection_broke(target)

    def lose(self, wire: tuple[int, int]) -> None:
        self.unprotect(wire)
        self.wires[wire].clear()

    def unprotect(self, wire: tuple[int, int]) -> None:
        """BORROWs on their way may come too late."""
        for kind, number, _ in self.wires[wire]:
            if kind == envelope.BORROW:
                self.unprotected.add((wire[1], number))

    def kill(self, dead: int) -> None:
        """It ends between any two of its records; the others hear of it in a while,
        after those that were not lost."""
        self.gone.append(self.nodes.pop(dead))
        for wire in self.wires:
            if wire[0] == dead and self.rng.random() < 0.5:
                self.lose(wire)
        for node in self.nodes.values():
            self.later(
                self.rng.random() * INBOX_S, lambda node=node: self.tell(node, dead)
            )

    def tell(self, node: Node, dead: int) -> None:
        wire = dead, node.process_id
        if self.rng.random() < 0.5:  # its last records come behind the news
            self.unprotect(wire)
            self.later(self.rng.random() * INBOX_S, lambda: self.deliver_all(wire))
        else:
            self.deliver_all(wire)
        node.process_lost(dead)

    def step(self, breaks: float, deaths: float) -> None:
        rng, node = self.rng, self.rng.choice(list(self.nodes.values()))
        choice = rng.random()
        if rng.random() < deaths and len(self.nodes) > 2:
            self.kill(node.process_id)
        elif choice < breaks:
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
                node.do_what_is_due()
            self.sleep(0.5)
        assert not any(self.wires.values())

    def check(self) -> None:
        """Each owner has entered the holds that there are."""
        truth: dict[tuple[int, int], dict[int, int]] = {}
        for node in self.nodes.values():
            claimed = [hold for c in node.waiting for hold in c._holds.values()]
            for hold in (*node.holds, *claimed):
                key = hold.owner, hold.object_id
                truth.setdefault(key, {})[hold.number] = node.process_id
        for (owner, number), holds in truth.items():
            if owner not in self.nodes:
                continue
            entry = self.nodes[owner].table.entry(number)
            if entry is None:
                assert (owner, number) in self.unprotected, "it is held, and gone"
            else:
                entered = {hold: entry.holds[hold][0] for hold in entry.holds}
                assert entered == holds, f"value {number} of {owner >> 16}"
        for node in self.nodes.values():
            for number in list(node.table._entries):
                assert (node.process_id, number) in truth, "nobody holds it"


@pytest.mark.parametrize("deaths", [0.0, 0.008])
@pytest.mark.parametrize("breaks", [0.0, 0.02, 0.06])
def test_owners_know_their_holders_some_time_after_breaks_and_deaths(
    breaks: float, deaths: float
) -> None:
    for seed in SEEDS:
        world = World(seed)
        for _ in range(STEPS):
            world.step(breaks, deaths)
        world.settle()
        world.check()
        for node in world.nodes.values():
            node.holds.clear()
            node.waiting.clear()
        world.settle()
        assert not any(len(node.table) for node in world.nodes.values()), seed
