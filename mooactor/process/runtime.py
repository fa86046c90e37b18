# SPDX-License-Identifier: MIT
"""One process's part in a session, put together from its parts.

The driver has one and every actor's process has one:

* `messenger` and `pump` move messages, `dispatch` hands each record on;
* `caller` has the calls that this process made, `server` (in an actor's process; see
  `worker`) those that it takes;
* `values` and `objects` have what Refs stand for, `plane` the memory of tensors;
* `agent` is the lifeline to the host's agent, which tells of `deaths`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from hashlib import blake2b
from time import perf_counter
from typing import Any

from mooactor.control import codec, envelope
from mooactor.control.keys import actor_of
from mooactor.control.lifeline import Lifeline
from mooactor.control.links import Link
from mooactor.control.messenger import Messenger, Peer
from mooactor.errors import ActorUnavailable
from mooactor.process import forks
from mooactor.process.agency import Agency
from mooactor.process.callbacks import Callbacks
from mooactor.process.caller import Caller
from mooactor.process.calls import context
from mooactor.process.current import forked_error
from mooactor.process.deadlock import DeadlockDetector
from mooactor.process.deaths import Deaths
from mooactor.process.dispatch import Dispatch, Server
from mooactor.process.housekeeper import Housekeeper
from mooactor.process.network import Network
from mooactor.process.objects.arrivals import Arrival, Arrivals
from mooactor.process.objects.audit import Audit
from mooactor.process.objects.holds import Claims
from mooactor.process.objects.lending import lending
from mooactor.process.objects.outcome import Outcome, Reply, taken_over
from mooactor.process.objects.relay import Relay
from mooactor.process.objects.spread import Spread
from mooactor.process.objects.table import ObjectTable, Stored, every_incarnation
from mooactor.process.objects.values import Values
from mooactor.process.openfiles import Room
from mooactor.process.place import Place
from mooactor.process.pump import Pump
from mooactor.process.streams import Streams
from mooactor.tensors.descriptors import owner_of
from mooactor.tensors.plane import DataPlane
from mooactor.tensors.public import cuda_statistics, set_current


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
        streams: Streams | None = None,
        origin: Place | None = None,
    ) -> None:
        self.network = network or Network()
        self.streams = streams or Streams(None)
        self.origin = origin  # where actors start that are not told where to
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
        # Which session it is, without telling the key.
        self.session_mark = blake2b(key, digest_size=8, person=b"session").digest()
        self.process_id = process_id
        self.actor_id = actor_of(process_id)
        self.lifeline_fd = lifeline.fileno()
        self.arrivals: Arrivals | None = None  # None: all is on this host
        watched: tuple[int, ...] = ()
        if self.network.transports not in (None, ("shm",)):
            self.arrivals = Arrivals(self.plane, self._nothing_ready)
            watched = (self.arrivals.readable_fd,)
        self.messenger = Messenger(directory, process_id, key, watched)
        dispatch = Dispatch(self)
        self.dispatch, self.dispatched = dispatch.message, dispatch.done_with
        self.pump = Pump(self.messenger, self, self.arrivals)
        self.callbacks = Callbacks()
        self.agent = Agency(self, lifeline)
        self.deaths = Deaths(self)
        self.caller = Caller(self)
        self.values = Values(self)
        self.objects = ObjectTable(process_id, self)
        self.audit: Audit = Audit(self)
        self.spread = Spread(self)
        self.relay = Relay(self)
        self.deadlocks = DeadlockDetector(self)
        self.room = Room(self)
        set_current(self.plane)
        self.server: Server | None = None
        self.closed = False
        self.forked = False  # this process is a child of the one that had it
        self.dirty: set[Peer] = set()  # with records that wait for company
        self._afterwards: deque[tuple[int, int, int, bytes]] = deque()
        self._granted: set[tuple[int, int]] = set()  # (owner, receiver) that it knows
        self._links: dict[int, Link] = {}
        self.housekeeper = Housekeeper(self)
        self.pump.arm = self.housekeeper.arm

    # -- payloads ----------------------------------------------------------

    def attach(
        self,
        data: bytes,
        buffers: Sequence[Any],
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
        # If it dies before it has a plane, only the agent can tell: nobody hangs up.
        self.watch(process_id)
        descriptors = self.plane.export_all(buffers, process_id, wait=wait)
        self._have_owners_watch(descriptors, process_id)
        return envelope.pack_attached(descriptors, data)

    def forget_grants(self, process_id: int) -> None:
        """It is gone, whether it owned or received."""
        if self._granted:
            self._granted = {pair for pair in self._granted if process_id not in pair}

    def _have_owners_watch(self, descriptors: list[bytes], process_id: int) -> None:
        """Received memory is granted by its owner, in C: this is how it learns to
        whom."""
        for owner in set(map(owner_of, descriptors)) - {self.process_id, process_id}:
            if (owner, process_id) not in self._granted:
                self._granted.add((owner, process_id))
                self.post(owner, envelope.WATCH, process_id)

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
        kept: Reply | None = record.memo.get("reply")
        if kept is not None:
            return kept  # handling the record was cut short, and begins again
        descriptors: list[bytes] = []
        payload: Any = record.payload
        claims = None
        if record.flags & envelope.LOANS:
            lender, loans, payload = envelope.split_loans(payload)
            made = Claims(self, lender, loans)
            claims = record.memo.setdefault("claims", made)
            if claims is not made:
                made.disarm()  # they are the other's
        if record.flags & envelope.ATTACHED:
            descriptors, payload = envelope.split_attached(payload)
        elif record.flags & envelope.EMPTY:
            payload = None
        failed = record.kind in (envelope.REPLY, envelope.VALUE) and bool(
            record.flags & envelope.ERROR
        )
        reply = Reply(payload, descriptors, failed, self.plane, claims)
        first: Reply = record.memo.setdefault("reply", reply)
        if first is not reply:
            reply.descriptors = []  # they are the other's
        return first

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
        self.pump.arm()
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
            self.pump.arm()

    def _nothing_ready(self) -> bool:
        return self.server is None or not self.server.has_ready()

    def store(self, data: bytes, buffers: codec.Buffers, loan: lending) -> Stored:
        """Keep an encoded value, its large parts in shared memory, and hold the values
        of the Refs inside it."""
        return Stored(self, data, buffers, loan if loan else None)

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
            new = Link(actor_id, incarnation, label)
            link = self._links.setdefault(actor_id, new)
            if link is new and watch:
                self.agent.tell(op="watch", id=actor_id, incarnation=incarnation)
        return link

    def watch(self, process_id: int) -> None:
        """Be told when that process dies: then what it holds of ours is free. One that
        is no actor's is not watched: its end is the session's."""
        if process_id == self.process_id or actor_of(process_id) in self._links:
            return  # whoever has a link is told
        number = process_id & 0xFFFF
        incarnation = 0 if process_id == every_incarnation(process_id) else number
        label = f"process {process_id:016x}"
        self.link(actor_of(process_id), incarnation, label, watch=True)

    def known_alive(self) -> int:
        """How many actors are known that are not known to be gone for good."""
        return sum(link.cause is None for link in list(self._links.values()))

    def is_gone(self, process_id: int) -> bool:
        """Whether a process is known to be dead, or an actor in `every_incarnation`."""
        link = self._links.get(actor_of(process_id))
        if link is None:
            return False
        return link.cause is not None or link.incarnation > process_id & 0xFFFF

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
        return self.wait_some((outcome,), 1, lambda: outcome.state, timeout)

    def wait_some(
        self,
        outcomes: Sequence[Outcome],
        needed: int,
        done: Callable[[], object],
        timeout: float | None = None,
    ) -> bool:
        """Block until `done()`, which `needed` of `outcomes` make true; False if
        `timeout` seconds, or the deadline of the call that runs here, passed first."""
        if self.dirty or self._afterwards:
            self.flush()
        deadline = None if timeout is None else perf_counter() + timeout
        caller = context.get()
        if caller is None:
            return self.pump.wait(done, deadline, outcomes)
        if caller.deadline is not None:
            deadline = min(deadline or caller.deadline, caller.deadline)
        return self.deadlocks.wait(caller, outcomes, needed, done, deadline)

    def flush(self) -> None:
        """Send every record that waits for company."""
        self.dirty.clear()  # a hint; what waits is known to the messenger
        self.messenger.flush()
        self.post_what_is_due()
        self.objects.sweep()

    def flush_if_due(self) -> None:
        """As `flush`, but quick if nothing is known to be due. For whoever is about to
        wait: what else waits for company leaves when the pump's leader sleeps."""
        if self.dirty or self._afterwards or self.objects.dropped:
            self.flush()

    def post_what_is_due(self) -> None:
        """Post what finalizers have left behind."""
        while self._afterwards:
            try:
                record = self._afterwards.popleft()
            except IndexError:
                return  # another thread was quicker
            self.post(*record)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Call `action` in so much time, in the housekeeper's thread. It must be
        quick."""
        self.housekeeper.at(perf_counter() + seconds, action)

    def look(self) -> bool:
        """Dispatch what has come, if nobody else does; whether there was something."""
        return self.pump.try_drain()

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
        """Send one control record now, behind what is queued for that process; to one
        that is known to be dead, nothing."""
        if self.is_gone(process_id):
            return
        record = envelope.pack_record(kind, number, payload, flags)
        self.messenger.peer(process_id).send(record)

    def post_later(
        self, process_id: int, kind: int, number: int, payload: bytes = b""
    ) -> None:
        """Post with the next flush. For finalizers, which must take no lock."""
        self._afterwards.append((process_id, kind, number, payload))
        self.pump.arm()

    # -- the end -----------------------------------------------------------

    def over(self, what: str) -> ActorUnavailable:
        """The error of `what`, which needs this runtime, once that is closed."""
        if self.forked:
            return forked_error(what)
        return ActorUnavailable(
            f"{what}: its session has ended; make it anew in this one",
            delivered=False,
        )

    def disown(self) -> None:
        """In a process that was forked from this one: see `forks`."""
        forks.disown(self)

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
        self.housekeeper.close()
        self.callbacks.close()
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
        self.objects.sweep()
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
