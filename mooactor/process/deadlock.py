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
Not found, and ended by their deadlines only: cycles through threads that the user
started, and cycles other than recursion through an actor that runs several sync methods
at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from mooactor.control import bodies, envelope
from mooactor.errors import DeadlockError
from mooactor.process.calls import IN_THREAD, CallContext

if TYPE_CHECKING:
    from mooactor.control.links import Link
    from mooactor.control.sender import Sender
    from mooactor.process.interface import MethodSpec
    from mooactor.process.objects.future import Future
    from mooactor.process.poller import Poller

_FIRST_PROBE_S = 0.1
_NEXT_PROBE_S = 0.4
_MAX_HOPS = 64


class Wait:
    """A wait of one method: ``needed`` of ``futures``."""

    __slots__ = ("futures", "needed", "stuck")

    def __init__(self, futures: Sequence[Future], needed: int) -> None:
        self.futures = futures
        self.needed = needed
        self.stuck: set[int] = set()  # those from which a probe came home

    def calls_of(self, index: int) -> Iterator[Future]:
        """The calls under way that one of the futures is made of."""
        future = self.futures[index]
        for part in future.parts or (future,):
            if not part.state and part.link is not None:
                yield part


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


class Holders(Protocol):
    """The callee's side, which knows the calls that hold others up."""

    def holders_of(self, sender: int, call_id: int) -> list[CallContext]: ...


class DeadlockDetector:
    """One per process; used in actors' processes."""

    #: The callee's side, in an actor's process.
    server: Holders | None = None

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
        self._waits: dict[int, Wait] = {}  # of this process, by number

    def wait(
        self,
        caller: CallContext,
        futures: Sequence[Future],
        needed: int,
        done: Callable[[], object],
        deadline: float | None,
    ) -> bool:
        """Wait inside a method, as `Poller.wait` does, probing once that takes long."""
        number, wait = next(self._numbers), Wait(futures, needed)
        self._waits[number] = wait
        caller.awaits.append(wait)
        poller, step = self._poller, _FIRST_PROBE_S
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
                for index in range(len(futures)):
                    self._probe(wait, index, caller, number, index, [])
        finally:
            self._waits.pop(number, None)
            if wait in caller.awaits:
                caller.awaits.remove(wait)

    def _probe(
        self,
        wait: Wait,
        index: int,
        waiter: CallContext,
        number: int,
        of: int,
        path: list[str],
        initiator: int = 0,
    ) -> None:
        """Ask the actors that will produce one future what holds it up there."""
        # Labels need not be unique; the id in front makes a hop so.
        hop = f"{waiter.actor_id:x} {waiter.actor_label}"
        if len(path) >= _MAX_HOPS or path.count(hop) > 1:
            return
        origin = initiator or self._me
        payload = bodies.Probe(origin, number, of, [*path, hop]).packed()
        for call in wait.calls_of(index):
            link = call.link
            if link is not None:
                self._sender.post(
                    link.process_id, envelope.PROBE, call.call_id, payload
                )

    def on_probe(self, record: envelope.Record) -> None:
        """Somebody waits, directly or not, for a call that the sender made here."""
        initiator, number, of, path = bodies.Probe.of(record.payload)
        server = self.server
        if server is None:
            return
        own = self._waits.get(number) if initiator == self._me else None
        for holder in server.holders_of(record.sender, record.call_id):
            for wait in list(holder.awaits):
                if own is not None and wait is own:
                    self._came_home(wait, of, path)
                elif wait.needed == len(wait.futures):
                    for index in range(len(wait.futures)):
                        self._probe(wait, index, holder, number, of, path, initiator)

    def _came_home(self, wait: Wait, index: int, path: list[str]) -> None:
        wait.stuck.add(index)
        if len(wait.stuck) <= len(wait.futures) - wait.needed:
            return
        labels = tuple(hop.partition(" ")[2] for hop in path)
        cycle = " -> ".join([*labels, labels[0]])
        for stuck in wait.stuck:
            for call in list(wait.calls_of(stuck)):
                error = DeadlockError(
                    f"a cycle of calls that wait for each other: {cycle}; use "
                    ".remote() or .tell() at one point of it",
                    cycle=labels,
                )
                self._abandon(call, error)
