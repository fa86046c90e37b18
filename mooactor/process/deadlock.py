# SPDX-License-Identifier: MIT
"""Finding cycles of calls that wait for each other.

There are two nets. A call that is waited for carries the chain of calls that wait for
it. If the callee's room is taken by calls of that chain, the call is refused before it
is sent. A cycle that the chain cannot show (two actors that call each other at the same
moment, a wait for an older Ref, for a stream, for several Refs) is found by edge
chasing (Chandy, Misra, Haas: Distributed Deadlock Detection, 1983, AND model). A method
that has waited for a while sends a probe to the actors it waits for. An actor in which
that call is held up passes the probe on along the waits that hold the call up. A probe
that comes home has walked a cycle.

A wait for k of n Refs is hopeless once more than n - k of them lead back to it. A probe
is passed on only through waits for all of their Refs: through others it proves nothing.

A method that waits for room in a mailbox waits for the end of any call that its process
has outstanding there. That is hopeless if one and the same call holds up all of them,
and leads back. The probe has the sum of their ids, so the callee sees whether one has
ended, and its reply is on the way.

Not found, and ended by their deadlines only: cycles through threads that the user
started, or through a wait with a timeout of its own, which ends by itself, and cycles
other than recursion through an actor that runs several sync methods at once. A wait for
room is also silent if an outstanding call is async, unless its actor runs one call at a
time, if one is a stream that waits for its consumer, and if one has a deadline before
that of the method, which will make room.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from mooactor.control import bodies, envelope
from mooactor.errors import DeadlockError
from mooactor.process.calls import IN_THREAD, CallContext, Server

if TYPE_CHECKING:
    from mooactor.control.links import Link
    from mooactor.control.sender import Sender
    from mooactor.process.interface import MethodSpec
    from mooactor.process.objects.future import Future
    from mooactor.process.poller import Poller


#: A question for an actor: its process, the number and the flags of the record.
Question = tuple[int, int, int]


class Wait:
    """A wait of one method: ``needed`` of ``futures``."""

    __slots__ = ("futures", "needed", "stuck")

    def __init__(self, futures: Sequence[Future], needed: int) -> None:
        self.futures = futures
        self.needed = needed
        self.stuck: set[int] = set()  # those from which a probe came home

    @property
    def places(self) -> int:
        """The number of things that it waits for."""
        return len(self.futures)

    def calls_of(self, index: int) -> Iterator[Future]:
        """The calls under way that one of the futures is made of."""
        future = self.futures[index]
        for part in future.parts or (future,):
            if not part.state and part.link is not None:
                yield part

    def questions(self, index: int) -> Iterator[Question]:
        """Questions for the actors that will produce one of the futures."""
        for call in self.calls_of(index):
            link = call.link
            if link is not None:
                yield link.process_id, call.call_id, 0


class WaitForRoom:
    """A wait of one method for room in an actor's mailbox."""

    places = needed = 1

    def __init__(
        self, link: Link, pending: Mapping[int, Future], deadline: float | None
    ) -> None:
        """`pending`: the calls of this process, by id; `deadline`: the method's own."""
        self.link = link
        self.stuck: set[int] = set()
        self.cycle: tuple[str, ...] = ()  # once it is known to be hopeless
        self._pending = pending
        self._ends_at = math.inf if deadline is None else deadline

    def questions(self, index: int) -> Iterator[Question]:
        """A question for the actor; none if there is room by now, or one of the calls
        will end by itself."""
        ids = list(self.link.calls)
        if len(ids) >= self.link.limit and not any(map(self._ends_before, ids)):
            yield self.link.process_id, sum(ids), envelope.ROOM

    def _ends_before(self, call_id: int) -> bool:
        future = self._pending.get(call_id)
        deadline = None if future is None else future.deadline
        return deadline is not None and deadline < self._ends_at


_FIRST_PROBE_S = 0.1
_NEXT_PROBE_S = 0.4
_MAX_HOPS = 64


def refuse_cycle(link: Link, spec: MethodSpec, caller: CallContext) -> None:
    """Raise if the callee has no room but for calls that wait for this one.

    Raises:
      DeadlockError: nothing was sent.
    """
    chain = (*caller.chain, caller.chain_entry)
    thread = IN_THREAD if link.has_one_thread and not spec.is_async else 0
    room = 1 if thread else link.concurrency
    taken = chain.count(link.actor_id | IN_THREAD)
    if not thread:
        taken += chain.count(link.actor_id)
    if taken < room:
        return
    if link.actor_id == caller.actor_id and room == 1:
        raise DeadlockError(
            f"{caller.actor_label} calls itself and waits; it runs one method at "
            "a time. Call the method on self, or use .remote() or .tell()",
            delivered=False,
            cycle=(caller.actor_label,),
        )
    at_once = "one call" if room == 1 else f"{room} calls"
    raise DeadlockError(
        f"{caller.actor_label} calls {link.label}, which runs {at_once} at once "
        f"and waits for {caller.actor_label}.{caller.method}; use .remote() or "
        ".tell() on one side, or make one of them async",
        delivered=False,
        cycle=(link.label, caller.actor_label),
    )


class DeadlockDetector:
    """One per process; used in actors' processes."""

    #: The callee's side, in an actor's process.
    server: Server | None = None

    def __init__(
        self,
        process_id: int,
        poller: Poller,
        sender: Sender,
        abandon: Callable[[Future, BaseException], object],
    ) -> None:
        """`abandon`: end a call, and tell its callee."""
        self._me = process_id
        self._poller = poller
        self._sender = sender
        self._abandon = abandon
        self._numbers = itertools.count(1)
        self._waits: dict[int, Wait | WaitForRoom] = {}  # of this process, by number

    def wait(
        self,
        caller: CallContext,
        futures: Sequence[Future],
        needed: int,
        done: Callable[[], object],
        deadline: float | None,
    ) -> bool:
        """Wait inside a method, as `Poller.wait` does, probing once that takes long."""
        wait = Wait(futures, needed)
        return self._probing(caller, wait, done, deadline, futures, _FIRST_PROBE_S)

    def wait_for_room(
        self,
        caller: CallContext,
        wait: WaitForRoom,
        done: Callable[[], object],
        deadline: float | None,
    ) -> bool:
        """The same for room in a mailbox, but probing at once.

        Raises:
          DeadlockError: there will be none before the method ends.
        """

        def over() -> object:
            return wait.cycle or done()

        roomy = self._probing(caller, wait, over, deadline, (), 0.0)
        if wait.cycle and not done():
            raise DeadlockError(
                f"{wait.link.label} has {len(wait.link.calls)} calls outstanding from "
                "here, its bound (max_pending), and ends none of them, because of a "
                f"cycle of calls that wait for each other: {_shown(wait.cycle)}; make "
                "fewer calls at a time, raise max_pending, or make one of the methods "
                "async",
                delivered=False,
                cycle=wait.cycle,
            )
        return roomy

    def _probing(
        self,
        caller: CallContext,
        wait: Wait | WaitForRoom,
        done: Callable[[], object],
        deadline: float | None,
        futures: Sequence[Future],
        step: float,
    ) -> bool:
        number, poller = next(self._numbers), self._poller
        self._waits[number] = wait
        caller.awaits.append(wait)
        try:
            while True:
                until = perf_counter() + step
                if deadline is not None:
                    until = min(until, deadline)
                if poller.wait(done, until, futures):
                    return True
                late = deadline is not None and perf_counter() >= deadline
                if late or self._sender.ended:
                    return bool(done())
                step = _NEXT_PROBE_S
                for index in range(wait.places):
                    self._probe(wait, index, caller, number, index, [])
        finally:
            self._waits.pop(number, None)
            if wait in caller.awaits:
                caller.awaits.remove(wait)

    def _probe(
        self,
        wait: Wait | WaitForRoom,
        index: int,
        waiter: CallContext,
        number: int,
        of: int,
        path: list[str],
        initiator: int = 0,
    ) -> None:
        """Ask the actors that one thing is awaited of what holds it up there."""
        # Labels need not be unique; the id in front makes a hop so.
        hop = f"{waiter.actor_id:x} {waiter.actor_label}"
        if len(path) >= _MAX_HOPS or path.count(hop) > 1:
            return
        origin = initiator or self._me
        payload = bodies.Probe(origin, number, of, [*path, hop]).packed()
        for process_id, asked, flags in wait.questions(index):
            self._sender.post(process_id, envelope.PROBE, asked, payload, flags)

    def on_probe(self, record: envelope.Record) -> None:
        """Somebody waits, directly or not, for a call that the sender made here, or for
        the end of any of its calls."""
        initiator, number, of, path = bodies.Probe.of(record.payload)
        server = self.server
        if server is None:
            return
        own = self._waits.get(number) if initiator == self._me else None
        if record.flags & envelope.ROOM:
            alone = server.holder_of_all(record.sender, record.call_id)
            holders = [] if alone is None else [alone]
        else:
            holders = server.holders_of(record.sender, record.call_id)
        for holder in holders:
            for wait in list(holder.awaits):
                if own is not None and wait is own:
                    self._came_home(wait, of, path)
                elif wait.needed == wait.places:
                    for index in range(wait.places):
                        self._probe(wait, index, holder, number, of, path, initiator)

    def _came_home(self, wait: Wait | WaitForRoom, index: int, path: list[str]) -> None:
        wait.stuck.add(index)
        if len(wait.stuck) <= wait.places - wait.needed:
            return
        labels = tuple(hop.partition(" ")[2] for hop in path)
        if isinstance(wait, WaitForRoom):
            wait.cycle = labels
            self._poller.wake()
            return
        cycle = _shown(labels)
        for stuck in wait.stuck:
            for call in list(wait.calls_of(stuck)):
                error = DeadlockError(
                    f"a cycle of calls that wait for each other: {cycle}; use "
                    ".remote() or .tell() at one point of it",
                    cycle=labels,
                )
                self._abandon(call, error)


def _shown(cycle: Sequence[str]) -> str:
    return " -> ".join([*cycle, cycle[0]])
