# SPDX-License-Identifier: MIT
"""Refs that are handed on under random histories of calls, breaks, deaths and ends.

`Handovers` and `Values` are real. The processes, their calls, connections and clock are
simulated: a connection delivers in order, and when it breaks, all that is on its way is
lost. The sender knows first, as with `breaks`. A seed replays a history.
"""

from __future__ import annotations

import itertools
import os
import random
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

import mooactor as moo
from mooactor.control import bodies, codec, envelope
from mooactor.control.keys import actor_of
from mooactor.control.links import Link
from mooactor.errors import Cause
from mooactor.process.objects.future import ERROR, Future, Reply
from mooactor.process.objects.handovers import Handovers
from mooactor.process.objects.values import Values
from tests.process.timers import Timers

SEEDS = [int(s) for s in os.environ.get("MOOACTOR_SEEDS", "").split()] or range(40)
ACTORS = [(number + 1) << 16 for number in range(4)]
STEPS = 250
# Kinds of the test's own.
MAKE, USE, REPLY, BROKE, CANCEL = range(1000, 1005)


class Ref(Future):
    """Of a call that makes `value`, or borrowed from a `home`."""

    def __init__(self, value: int, home: Any = None) -> None:
        Future.__init__(self)
        self.value, self.home = value, home
        self.maker = 0  # or its owner
        self.retries = 0
        self.early = False


class Stayed:
    """The result of a call that stays with its maker."""

    def __init__(self, owner: int, number: int) -> None:
        self.home: Any = SimpleNamespace(owner=owner, object_id=number)
        self.error: BaseException | None = None

    def is_here(self) -> bool:
        return self.error is not None

    def failure(self) -> BaseException | None:
        return self.error

    def pull(self) -> list[Any]:
        return []

    def value(self) -> Any:
        assert self.error is not None, "nobody reads it here"
        raise self.error


class Job:
    """A call that was given Refs, at its actor."""

    def __init__(self, call: tuple[int, int], tokens: Any, expected: Any) -> None:
        self.call, self.tokens, self.expected = call, tokens, expected


class Node:
    """One process: its own sender, links, payloads, table, broadcaster and relay."""

    def __init__(self, world: World, process_id: int) -> None:
        self.world, self.process_id = world, process_id
        self._links: dict[int, Link] = {}
        self.borrows: Any = None
        self.handovers = Handovers(*[self] * 5, spans_hosts=True)  # type: ignore[arg-type]
        self.handovers.producer = self
        self.values = Values(*[self] * 4, world.later, lambda: None)  # type: ignore[arg-type]
        self.ids = itertools.count(1)
        self.pending: dict[int, Ref] = {}  # calls that make something
        self.uses: dict[int, tuple[int, Future]] = {}  # and others, with their targets
        self.running: dict[tuple[int, int], tuple[int, list[bytes]]] = {}
        self.jobs: list[Job] = []
        self.latest: dict[int, int] = {}
        self.marks: dict[int, int] = {}
        self.objects: dict[int, Ref] = {}
        self.stayed: list[Stayed] = []  # results of its calls

    # -- as its links, sender, payloads, table, broadcaster and relay ------------

    def link(self, actor_id: int, incarnation: int, label: str, watch: bool) -> Link:
        link = self._links.get(actor_id)
        if link is None:
            link = self._links[actor_id] = Link(actor_id, incarnation, label)
            self.world.tell_if_dead(self, link)
        return link

    def peer_of(self, link: Link) -> Any:
        return SimpleNamespace(flush=lambda: None)

    def watch(self, process_id: int) -> None:
        self.link(actor_of(process_id), process_id & 0xFFFF, "it", watch=True)

    def is_gone(self, process_id: int) -> bool:
        link = self._links.get(actor_of(process_id))
        return link is not None and link.incarnation > process_id & 0xFFFF

    def post(
        self,
        target: int,
        kind: int,
        number: int,
        payload: Any = b"",
        flags: int = 0,
        *,
        gather: bool = False,
    ) -> None:
        if not self.is_gone(target):
            self.world.send(self.process_id, target, (kind, number, payload, flags))

    def pack(self, data: bytes, *_: Any) -> tuple[bytes, int]:
        return data, 0

    def reply_of(self, record: envelope.Record) -> Reply:
        failed = bool(record.flags & envelope.ERROR)
        return Reply(record.payload, [], failed, plane=None)  # type: ignore[arg-type]

    def receive(self, *_: Any, argument: bool) -> None: ...
    def cancel(self, *_: Any) -> None: ...
    def came_again(self, *_: Any, arriving: bool) -> None: ...
    def arrived(self, *_: Any) -> None: ...
    def answered(self, *_: Any) -> None: ...
    def does_not_come(self, *_: Any) -> None: ...

    def stored(self, object_id: int) -> None: ...

    def future(self, object_id: int) -> Ref | None:
        return self.objects.get(object_id)

    def retry(self, *_: Any) -> bool:
        return False

    knows = asks_holder = holder_has_none = retry

    def connection_broke(self, process_id: int) -> list[tuple[int, int]]:
        return []  # it broadcasts nothing

    # -- as the producer -----------------------------------------------------

    def on_forward(self, sender: int, call_id: int, pair: bytes) -> bool:
        known = self.running.get((sender, call_id))
        if known is not None:
            known[1].append(pair)
        return known is not None

    def will_forward(self, token: int) -> bool:
        noted = [pair for _, pairs in self.running.values() for pair in pairs]
        return token in [bodies.numbers(pair, 2)[1] for pair in noted]

    def finish(self, key: tuple[int, int], flags: int = 0) -> None:
        value, pairs = self.running.pop(key)
        payload = codec.encode(value)[0]
        if flags:
            payload = codec.encode_error(moo.Cancelled("given up"), "there")
        elif self.world.rng.random() < 0.5:
            self.objects[value] = kept = Ref(value)
            kept.set_value(value)
            self.post(key[0], REPLY, key[1], Stayed(self.process_id, value))
            key = (0, 0)
        if key[0]:
            self.post(key[0], REPLY, key[1], payload, flags)
        for pair in pairs:
            target, token = bodies.numbers(pair, 2)
            self.post(target, envelope.VALUE, token, payload, flags)

    # -- as the caller ---------------------------------------------------------

    def make(self, target: int, ref: Ref) -> None:
        self.watch(target)
        ref.link = self._links[actor_of(target)]
        ref.call_id = next(self.ids)
        self.pending[ref.call_id] = ref
        self.post(ref.link.process_id, MAKE, ref.call_id, ref.value)

    def hand_on(self, refs: list[Ref], target: int) -> Future:
        self.watch(target)
        target = self._links[actor_of(target)].process_id
        tokens = []
        for ref in refs:
            token = self.world.rng.getrandbits(63)
            producer = self.handovers.send(ref, target, token)
            tokens.append((token, producer, ref.value))
        call_id, use = next(self.ids), Future()
        self.uses[call_id] = target, use
        self.post(target, USE, call_id, tokens)
        return use

    def give_up(self, future: Future) -> None:
        target = next((t for t, use in self.uses.values() if use is future), 0)
        if isinstance(future, Ref) and future.call_id in self.pending:
            target = future.link.process_id
        if future.set_error(moo.Cancelled("given up")) and target:
            numbers = {use: i for i, (_, use) in self.uses.items()}
            self.post(target, CANCEL, numbers.get(future, future.call_id))

    # -- as the callee ---------------------------------------------------------

    def on_use(self, sender: int, call_id: int, tokens: Any) -> None:
        call = sender, call_id
        expected = [
            self.values.expect(token, producer, call) for token, producer, _ in tokens
        ]
        job = Job(call, tokens, expected)
        if call_id < self.marks.get(sender, 0):
            self.drop(job)
            self.values.given_up(sender, self.marks[sender])
        else:
            self.jobs.append(job)

    def drop(self, job: Job) -> None:
        for token, _, _ in job.tokens:
            self.values.abandon(token)

    def run_ready(self) -> None:
        for job in [job for job in self.jobs if all(e.state for e in job.expected)]:
            self.jobs.remove(job)
            wrong = 0
            for (token, _, value), one in zip(job.tokens, job.expected, strict=True):
                self.values.forget(token)
                error = one.failure()
                assert error is not None or one.unwrap() == value, "another's value"
                wrong += error is not None
            self.post(job.call[0], REPLY, job.call[1], codec.encode(wrong)[0])

    def on_cancel(self, sender: int, call_id: int) -> None:
        if (sender, call_id) in self.running:
            self.finish((sender, call_id), envelope.ERROR)
        for job in [job for job in self.jobs if job.call == (sender, call_id)]:
            self.jobs.remove(job)
            self.drop(job)
            self.post(sender, REPLY, call_id, codec.encode(0)[0])

    # -- records ---------------------------------------------------------------

    def on_record(
        self, sender: int, kind: int, number: int, body: Any, flags: int
    ) -> None:
        if kind in (MAKE, USE):
            self.watch(sender)
            self.latest[sender] = max(number, self.latest.get(sender, 0))
        if kind == MAKE and number >= self.marks.get(sender, 0):
            self.running[sender, number] = body, []
        elif kind == USE:
            self.on_use(sender, number, body)
        elif kind == REPLY:
            self.on_reply(number, body, flags)
        elif kind == BROKE:
            latest, mark = body
            self.marks[sender] = mark
            self.values.given_up(sender, mark)
            self.world.later(0.0, lambda: self.end(sender, latest, theirs=True))
        elif kind == CANCEL:
            self.on_cancel(sender, number)
        elif kind < MAKE:
            record: Any = envelope.Record(
                sender, kind, flags, 0, number, 0.0, b"", (), body, {}
            )
            {
                envelope.FORWARD: self.handovers.on_forward,
                envelope.FETCH: self.handovers.on_fetch,
                envelope.RETRY: self.handovers.on_retry,
                envelope.VALUE: self.values.on_value,
            }[kind](record)
        self.run_ready()

    def on_reply(self, number: int, body: bytes, flags: int) -> None:
        ref = self.pending.pop(number, None)
        if ref is not None and flags:
            ref.set_error(codec.decode_error(body))
        elif ref is not None and isinstance(body, Stayed):
            self.stayed.append(body)
            ref.set_stored(body)
        elif ref is not None:
            ref.set_value(codec.decode(body))
        elif number in self.uses:
            self.uses.pop(number)[1].set_value(codec.decode(body))

    # -- breaks and deaths -------------------------------------------------------

    def broke(self, target: int) -> None:
        """Its connection to `target` is gone, and the next one stands."""
        mark = next(self.ids)
        self.post(target, BROKE, 0, (self.latest.get(target, 0), mark))
        for number, ref in list(self.pending.items()):
            if ref.link.process_id == target and ref.retries and not ref.state:
                del self.pending[number]
                ref.early = True
                self.make(target, ref)
        self.end(target, mark, theirs=False)

    def end(self, other: int, latest: int, theirs: bool) -> None:
        if self.is_gone(other) or self.world.nodes.get(self.process_id) is not self:
            return
        for number, ref in list(self.pending.items()):
            if ref.link.process_id == other and ref.early:
                ref.early, ref.retries = False, ref.retries - 1
            elif ref.link.process_id == other and number <= latest:
                self.lost(number, ref, moo.ActorUnavailable("cut off"))
        for number, (target, use) in list(self.uses.items()):
            if target == other and number <= latest:
                del self.uses[number]
                use.set_error(moo.ActorUnavailable("cut off"))
        self.values.connection_broke(other, "it broke", None, theirs=theirs)
        self.handovers.connection_broke(other)
        self.run_ready()

    def lost(self, number: int, ref: Ref, why: BaseException) -> None:
        del self.pending[number]
        if ref.retries and not ref.state:
            ref.retries -= 1
            self.make(ref.link.process_id, ref)
        else:
            ref.set_error(why)

    def process_lost(self, dead: int) -> None:
        link = self._links.get(actor_of(dead))
        while link is not None and link.process_id <= dead:
            self.next_lost(link, link.process_id)
        self.run_ready()

    def next_lost(self, link: Link, dead: int) -> None:
        link.incarnation += 1
        for number, ref in list(self.pending.items()):
            if ref.link is link:
                self.lost(number, ref, moo.ActorRestarted("dead"))
        for number, (target, use) in list(self.uses.items()):
            if target == dead:
                del self.uses[number]
                use.set_error(moo.ActorRestarted("dead"))
        cause = Cause("signal")
        self.values.producer_lost(link, lambda: link.restarted(cause, None))
        for stayed in self.stayed:
            if stayed.home is not None and stayed.home.owner == dead:
                stayed.error, stayed.home = link.died_with_result(cause), None
        self.handovers.process_lost(dead)
        for key in [key for key in self.running if key[0] == dead]:
            del self.running[key]
        for job in [job for job in self.jobs if job.call[0] == dead]:
            self.jobs.remove(job)
            self.drop(job)
        self.values.given_up(dead)


class World:
    """All processes, the connections between them, and the time."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.slow = self.rng.randrange(len(ACTORS))  # the place of a wire
        timers = Timers()
        self.later, self.sleep = timers.later, timers.sleep
        self.wires: dict[tuple[int, int], deque[Any]] = {}
        self.nodes = {one: Node(self, one) for one in ACTORS}
        self.dead: list[int] = []
        self.values = itertools.count()
        self.refs: list[tuple[Node, Ref]] = []
        self.uses: list[tuple[Node, list[Ref], int, Future]] = []

    def send(self, source: int, target: int, record: Any) -> None:
        if source in self.nodes:  # else it is dead
            self.wires.setdefault((source, target), deque()).append(record)

    def deliver(self, wire: tuple[int, int]) -> None:
        if self.wires[wire]:
            record = self.wires[wire].popleft()
            node = self.nodes.get(wire[1])
            if node is not None and not node.is_gone(wire[0]):
                node.on_record(wire[0], *record)

    def cut(self, wire: tuple[int, int]) -> None:
        self.wires[wire].clear()
        source = self.nodes.get(wire[0])
        if source is not None and wire[1] in self.nodes:
            source.broke(wire[1])

    def kill(self, dead: int) -> None:
        """Its next incarnation is there, and the others hear of it in a while. Its
        messages may be lost or not."""
        del self.nodes[dead]
        self.dead.append(dead)
        self.nodes[dead + 1] = Node(self, dead + 1)
        for wire in self.wires:
            if wire[0] == dead and self.rng.random() < 0.5:
                self.wires[wire].clear()
        for node in list(self.nodes.values()):
            delay_s = self.rng.random()
            self.later(delay_s, lambda node=node: node.process_lost(dead))  # type: ignore[misc]

    def tell_if_dead(self, node: Node, link: Link) -> None:
        for dead in self.dead:
            if actor_of(dead) == link.actor_id and link.process_id <= dead:
                self.later(1.0, lambda dead=dead: node.process_lost(dead))  # type: ignore[misc]

    def another(self, node: Node) -> Node:
        others = [one for one in self.nodes.values() if one is not node]
        return self.rng.choice(others)

    def step(self, breaks: float, deaths: float, cuts: Any) -> None:
        rng, node = self.rng, self.rng.choice(list(self.nodes.values()))
        wires = [wire for wire in self.wires if wire[0] != wire[1]]
        if rng.random() < breaks and (wires := list(filter(cuts, wires))):
            self.cut(rng.choice(wires))
        if rng.random() < deaths:
            self.kill(node.process_id)
            return
        choice = rng.random()
        if choice < 0.15:
            self.some_ref(node)
        elif choice < 0.3:
            mine = [ref for its, ref in self.refs[-10:] if its is node]
            if mine:
                refs = rng.choices(mine, k=rng.choice((1, 2)))
                target = self.another(node).process_id
                use = node.hand_on(refs, target)
                self.uses.append((node, refs, target, use))
        elif choice < 0.32:
            mine = [ref for its, ref in self.refs[-10:] if its is node and ref.link]
            calls = [*mine, *(use for _, use in node.uses.values())]
            if calls:
                node.give_up(rng.choice(calls))
        elif choice < 0.38:
            self.finish_some(node)
        elif choice < 0.45:
            self.sleep(rng.random())
        elif self.wires:
            wires = list(self.wires)
            if wires.index(wire := rng.choice(wires)) != self.slow or choice > 0.98:
                self.deliver(wire)

    def some_ref(self, node: Node) -> None:
        other, ref = self.another(node), Ref(next(self.values))
        ref.maker = other.process_id
        if self.rng.random() < 0.3:  # borrowed
            other.objects[ref.value] = Ref(ref.value)
            ref.home = SimpleNamespace(owner=other.process_id, object_id=ref.value)
        else:
            ref.retries = self.rng.choice((0, 1, 100))
            node.make(other.process_id, ref)
        self.refs.append((node, ref))

    def finish_some(self, node: Node) -> None:
        if node.running:
            node.finish(self.rng.choice(list(node.running)))
        ripe = [ref for ref in node.objects.values() if not ref.state]
        if ripe:
            (one := self.rng.choice(ripe)).set_value(one.value)

    def settle(self) -> None:
        """Deliver all that is on its way, and let all end that is under way."""
        for _ in range(60):
            self.deliver_all()
            for node in list(self.nodes.values()):
                self.finish_some(node)
        for node in self.nodes.values():
            while node.running:
                node.finish(next(iter(node.running)))
            for ref in node.objects.values():
                ref.set_value(ref.value)
        for _ in range(60):
            self.deliver_all()
        assert not any(self.wires.values()), "records are sent for ever"

    def deliver_all(self) -> None:
        for wire in list(self.wires):
            for _ in range(len(self.wires[wire])):
                self.deliver(wire)
        self.sleep(0.5)
        for node in self.nodes.values():
            node.run_ready()

    def check(self) -> None:
        for node in self.nodes.values():
            assert not node.jobs, "a call waits for ever"
            unclaimed = len(node.values._unclaimed.since)  # their calls were lost
            assert len(node.values) == unclaimed, "a value is waited for"
            assert len(node.handovers) == 0, "a handover is kept"
        for node, _, _, use in self.uses:
            alive = self.nodes.get(node.process_id) is node
            assert use.state or not alive, "a caller waits for ever"


def run(seed: int, breaks: float, deaths: float, cuts: Any = None) -> World:
    world = World(seed)
    for _ in range(STEPS):
        world.step(breaks, deaths, cuts)
    world.settle()
    return world


@pytest.mark.parametrize("deaths", [0.0, 0.02])
@pytest.mark.parametrize("breaks", [0.0, 0.03, 0.1])
def test_whoever_waits_gets_a_value_or_an_error_and_nothing_is_kept(
    breaks: float, deaths: float
) -> None:
    for seed in SEEDS:
        run(seed, breaks, deaths).check()


def test_a_promise_for_a_call_that_was_cancelled_goes_to_and_fro_no_more() -> None:
    world = World(0)
    caller, maker, user, _ = world.nodes.values()
    ref = Ref(1)
    caller.make(maker.process_id, ref)
    caller.hand_on([ref], user.process_id)
    for _ in range(2):
        world.deliver((caller.process_id, maker.process_id))
    caller.give_up(ref)
    world.settle()
    world.check()


def test_breaks_between_two_cost_a_third_no_value() -> None:
    """Neither one that hands on what comes from one of them to the other, nor one that
    waits for a value from elsewhere."""
    two = set(ACTORS[:2])
    for seed in SEEDS:
        world = run(seed, 0.2, 0.0, lambda wire: set(wire) == two)
        for caller, refs, target, use in world.uses:
            apart = {caller.process_id, target} == two
            apart |= any({ref.maker, target} == two for ref in refs)
            failed = any(ref.state == ERROR for ref in refs)
            if not (apart or failed or isinstance(use.failure(), moo.Cancelled)):
                assert use.unwrap() == 0, seed
