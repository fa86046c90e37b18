# SPDX-License-Identifier: MIT
"""One process's part in a session, put together from its parts.

The driver has one and every actor's process has one:

* `messenger` and `pump` move messages, `dispatch` hands each record on;
* `caller` has the calls that this process made, `server` (in an actor's process; see
  `worker`) those that it takes;
* `values` and `objects` have what Refs stand for, `plane` the memory of tensors;
* `agent` is the lifeline to the host's agent, which tells of deaths.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any

from mooactor.control import codec, envelope
from mooactor.control.keys import actor_of
from mooactor.control.messenger import Messenger, Peer
from mooactor.process.agency import Agency
from mooactor.process.arrivals import Arrival, Arrivals
from mooactor.process.caller import Caller
from mooactor.process.calls import context
from mooactor.process.deadlock import DeadlockDetector
from mooactor.process.dispatch import Dispatch, Server
from mooactor.process.lifeline import Lifeline, Message
from mooactor.process.links import Link
from mooactor.process.network import Network
from mooactor.process.objects import ObjectTable, Stored
from mooactor.process.outcome import Outcome, Reply, Waiter, taken_over
from mooactor.process.pump import Pump
from mooactor.process.relay import Relay
from mooactor.process.spread import Spread
from mooactor.process.supervised import cause_of
from mooactor.process.values import Values
from mooactor.tensors.plane import DataPlane
from mooactor.tensors.public import cuda_statistics, set_current

_DEATH_GRACE_S = 0.008


class Runtime:
    """See the module. `close` ends it; afterwards every wait has ended, too."""

    def __init__(
        self,
        directory: str,
        key: bytes,
        process_id: int,
        lifeline: Lifeline,
        *,
        memory_limit: int | None = None,
        network: Network | None = None,
    ) -> None:
        self.network = network or Network()
        self.plane = DataPlane(
            directory,
            process_id,
            key,
            memory_limit=memory_limit,
            transports=self.network.transports,
            bind=self.network.bind,
            stripes=self.network.stripes,
            threads=self.network.threads,
            checksum=self.network.checksum,
            gpu_direct=self.network.gpu_direct,
        )
        self.directory = directory
        self.key = key
        self.process_id = process_id
        self.actor_id = actor_of(process_id)
        self.lifeline_fd = lifeline.fileno()
        self.messenger = Messenger(directory, process_id, key)
        self.arrivals: Arrivals | None = None  # None: all is on this host
        if self.network.transports not in (None, ("shm",)):
            self.arrivals = Arrivals(self.plane, self._nothing_ready)
        self.dispatch = Dispatch(self).message
        self.pump = Pump(self.messenger, self, self.arrivals)
        self.agent = Agency(self, lifeline)
        self.caller = Caller(self)
        self.values = Values(self)
        self.objects = ObjectTable()
        self.spread = Spread(self)
        self.relay = Relay(self)
        self.deadlocks = DeadlockDetector(self)
        set_current(self.plane)
        self.server: Server | None = None
        self.closed = False
        self.dirty: set[Peer] = set()  # with records that wait for company
        self._afterwards: deque[tuple[int, int, int]] = deque()
        self._links: dict[int, Link] = {}
        self._link_lock = threading.Lock()

    # -- payloads ----------------------------------------------------------

    def attach(
        self,
        data: bytes,
        buffers: codec.Buffers,
        process_id: int,
        *,
        wait: bool = False,
    ) -> bytes:
        """A payload with its large buffers exported to one process.

        With `wait`, for the first contact with another host, so that its failure is
        an error here. Never so in a thread that others depend on: the pump's, an
        actor's, an event loop's.

        Raises:
          OutOfMemory: nothing was exported.
          ActorUnavailable: the same; it is known that no transport leads there.
        """
        export, descriptors = self.plane.export, []
        try:
            for buffer in buffers:
                descriptors.append(export(buffer, process_id, wait=wait))
        except BaseException:
            for descriptor in descriptors:
                self.plane.revoke(descriptor)
            raise
        return envelope.pack_attached(descriptors, data)

    def result_of(self, record: envelope.Record) -> Reply:
        """The payload of a REPLY or VALUE, its attached memory taken over."""
        reply = self.reply_of(record)
        error = taken_over(reply)
        if error is not None:
            return reply.replaced_by(codec.encode_error(error, "the receiver"))
        return reply

    def reply_of(self, record: envelope.Record) -> Reply:
        """A record's payload, ready to be decoded or dropped.

        Raises:
          MalformedMessage: its attachments do not fit.
        """
        descriptors: list[bytes] = []
        payload: Any = record.payload
        if record.flags & envelope.ATTACHED:
            descriptors, payload = envelope.split_attached(payload)
        elif record.flags & envelope.EMPTY:
            payload = None
        failed = record.kind in (envelope.REPLY, envelope.VALUE) and bool(
            record.flags & envelope.ERROR
        )
        return Reply(payload, descriptors, failed, self.plane)

    def receive(
        self, reply: Reply, then: Callable[[], None], *, argument: bool = False
    ) -> Arrival | None:
        """Have what is attached fetched if it is on another host, and call `then` in
        the pump's thread when it is there; see `Arrivals.begin`.

        None: there is nothing to wait for, and nobody will be called.
        """
        if self.arrivals is None or not reply.is_remote():
            return None
        arrival = self.arrivals.begin(reply, then, argument=argument)
        if self.arrivals.restless:
            self.pump.arm()
        else:
            self.pump.arm_if_helped()
        return arrival

    def soon(self, action: Callable[[], None]) -> None:
        """Call `action` in a moment, when news of a death would have come."""
        assert self.arrivals is not None
        self.arrivals.soon(action)
        self.pump.arm()

    def cancel_arrival(self, arrival: Arrival | None) -> None:
        """Nobody wants it any more, or it was used."""
        if arrival is not None and self.arrivals is not None:
            self.arrivals.cancel(arrival)
            self.pump.arm_if_helped()

    def _nothing_ready(self) -> bool:
        return self.server is None or not self.server.has_ready()

    def store(self, data: bytes, buffers: codec.Buffers) -> Stored:
        """Keep an encoded value, its large parts in shared memory."""
        return Stored(data, buffers, self.plane)

    def read_lifeline(self) -> None:
        """Hear what the agent has to say; see `Agency.read`."""
        self.agent.read()

    def shared_segment(self, name: str, size: int) -> int:
        """See `Agency.shared_segment`."""
        return self.agent.shared_segment(name, size)

    # -- ways to others ----------------------------------------------------

    def link(self, actor_id: int, incarnation: int, label: str, *, watch: bool) -> Link:
        """The link to an actor; `watch` unless this process spawned it."""
        link = self._links.get(actor_id)
        if link is None:
            with self._link_lock:
                link = self._links.get(actor_id)
                if link is None:
                    link = Link(actor_id, incarnation, label)
                    self._links[actor_id] = link
                    if watch:
                        self.agent.tell(
                            op="watch", id=actor_id, incarnation=incarnation
                        )
        return link

    def peer_of(self, link: Link) -> Peer:
        """The way to an actor's present process."""
        peer = link.peer
        if peer is None:
            peer = link.peer = self.messenger.peer(link.process_id)
        return peer

    # -- waiting and sending -----------------------------------------------

    def wait(self, outcome: Outcome, timeout: float | None = None) -> bool:
        """Block until `outcome` is done; False if `timeout` seconds passed first."""
        if outcome.state:
            return True
        if self.dirty or self._afterwards:
            self.flush()
        deadline = None if timeout is None else perf_counter() + timeout
        caller = context.get()
        if caller is not None:
            if caller.deadline is not None:
                deadline = min(deadline or caller.deadline, caller.deadline)
            if caller.serial:
                return self.deadlocks.wait(outcome, deadline, caller)
        return self.wait_plainly(outcome, deadline)

    def wait_plainly(self, outcome: Outcome, deadline: float | None) -> bool:
        """As `wait`, until `deadline`, without a look at who waits for whom."""
        if self.pump.led:
            waiter = Waiter()
            outcome.listen(waiter.notify)
        else:
            waiter = None
        try:
            return self.pump.wait(lambda: outcome.state, deadline, waiter)
        finally:
            if waiter is not None:
                outcome.unlisten(waiter.notify)

    def flush(self) -> None:
        """Send every record that waits for company."""
        if self.dirty:
            dirty, self.dirty = self.dirty, set()
            for peer in dirty:
                peer.flush()
        while self._afterwards:
            self.post(*self._afterwards.popleft())
        self.objects.sweep()

    def queue_record(self, peer: Peer, record: bytes) -> None:
        """Send a record with the next flush, or at once if enough has gathered."""
        if peer.queue(record):
            self.dirty.add(peer)

    def is_idle(self) -> bool:
        """Whether nothing is due that nobody waits for."""
        return not (
            len(self.caller)
            or len(self.values)
            or len(self.objects)
            or self.dirty
            or self._afterwards
            or (self.arrivals is not None and self.arrivals.busy)
        )

    def post(
        self,
        process_id: int,
        kind: int,
        number: int,
        payload: bytes = b"",
        flags: int = 0,
    ) -> None:
        """Send one control record now, behind what is queued for that process."""
        record = envelope.pack_record(kind, number, payload, flags)
        self.messenger.peer(process_id).send(record)

    def post_later(self, process_id: int, kind: int, number: int) -> None:
        """Post with the next flush. For finalizers, which must take no lock."""
        self._afterwards.append((process_id, kind, number))
        self.pump.arm_if_helped()

    # -- deaths ------------------------------------------------------------

    def on_death(self, message: Message) -> None:
        """The agent says that an actor's process is gone."""
        self.link(message["id"], message["incarnation"], "an actor", watch=False)
        link = self._links[message["id"]]
        if link.cause is not None or message["incarnation"] < link.incarnation:
            return
        cause = cause_of(message["record"])
        old = link.actor_id + message["incarnation"]
        following = message["following"]
        if following is None:
            link.cause = cause
            link.peer = None
        # What it sent before it died may still be under way.
        self._drain_briefly(link)
        if following is None:
            self.caller.fail_all(link, lambda: link.gone(delivered=None))
        else:
            link.incarnation = following
            link.peer = None
            self.caller.retry_or_fail(link, cause)
        self.messenger.forget(old)
        self.objects.process_lost(old)
        self.spread.process_lost(old)
        self.relay.process_lost(old)
        self.plane.peer_lost(old)
        if self.server is not None:
            self.server.on_process_lost(old)
        self.pump.wake()

    def _drain_briefly(self, link: Link) -> None:
        end = perf_counter() + _DEATH_GRACE_S
        while link.outstanding and perf_counter() < end:
            if self.pump.leads_here:
                self.pump.drain()
            else:
                self.pump.try_drain()
            os.sched_yield()

    # -- the end -----------------------------------------------------------

    def close(self, linger_ms: int = 500) -> None:
        """End it: pending outcomes fail with `ActorUnavailable`."""
        if self.closed:
            return
        self.closed = True
        self.flush()
        self.caller.close()
        self.values.close()
        self.objects.close()
        self.spread.close()
        self.relay.close()
        if self.arrivals is not None:
            self.arrivals.close()
        self.pump.close()
        self.agent.close()
        self.messenger.close(linger_ms)
        set_current(None)
        self.plane.close()
        # Data that was received keeps it alive; this object must not.
        del self.plane
        self.arrivals = None

    def statistics(self) -> dict[str, Any]:
        """Counts that should come back to rest, and who is reached how; see
        `moo.stats()`."""
        return {
            "calls_pending": len(self.caller),
            "values_pending": len(self.values),
            "arriving": 0 if self.arrivals is None else len(self.arrivals),
            "objects": len(self.objects),
            "relayed": len(self.spread) + len(self.relay),
            "links": len(self._links),
            "transport": str(self.network),
            "memory": {} if self.closed else self.plane.statistics(),
            "cuda": cuda_statistics(),
            "peers": [] if self.closed else self._peers(),
        }

    def _peers(self) -> list[dict[str, Any]]:
        labels = {link.process_id: link.label for link in self._links.values()}
        rows = []
        for process_id in self.messenger.known():
            transport, why = self.plane.route(process_id)
            sent, fetched = self.plane.traffic(process_id)
            rows.append(
                {
                    "process": f"{process_id:016x}",
                    "actor": labels.get(process_id),
                    "transport": transport,
                    "why": why,
                    "bytes_sent": sent,
                    "bytes_fetched": fetched,
                }
            )
        return rows
