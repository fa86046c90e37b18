# SPDX-License-Identifier: MIT
"""One process's part in a session, put together from its parts.

The driver has one and every actor's process has one. `Runtime._put_together` shows the
dependencies of the parts, and the handler of each kind of record:

* `messenger` has the sockets, `links` the actors that are known, `sender` the records
  to be sent; `poller` reads, and `dispatch` hands each record on;
* `caller` has the calls that this process made, `server` (in an actor's process; see
  `actor.worker`) those that it takes;
* `values` and `objects` have the values of Refs, `borrows` tells their holders,
  `payloads` attaches tensors to records, and `plane` has the memory of tensors;
* `agent` is the lifeline to the host's agent, which tells of `deaths`;
* in a session of several hosts, `messenger` has the connections to the others, and
  `breaks` ends what a broken one has lost. The agent knows where each process is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter, sleep
from typing import Any

from mooactor.control import envelope
from mooactor.control.epochs import Epochs
from mooactor.control.keys import actor_of, every_incarnation, session_mark
from mooactor.control.lifeline import Lifeline, Message
from mooactor.control.links import Links
from mooactor.control.messenger import Messenger
from mooactor.control.reach import Reach
from mooactor.control.sender import Sender
from mooactor.errors import ActorUnavailable
from mooactor.process import forks
from mooactor.process.agent_client import AgentClient
from mooactor.process.arguments import Arguments
from mooactor.process.breaks import Breaks
from mooactor.process.callbacks import Callbacks
from mooactor.process.caller import Caller
from mooactor.process.calls import context
from mooactor.process.current import forked_error
from mooactor.process.deadlock import DeadlockDetector
from mooactor.process.deaths import Death, Deaths
from mooactor.process.dispatch import Dispatch, Handler
from mooactor.process.housekeeper import Housekeeper
from mooactor.process.objects.audit import Audit
from mooactor.process.objects.borrow import Borrows
from mooactor.process.objects.broadcast import Broadcaster
from mooactor.process.objects.future import Future
from mooactor.process.objects.inbound import InboundTransfers
from mooactor.process.objects.payloads import Payloads
from mooactor.process.objects.recount import Recounts
from mooactor.process.objects.relay import Relay
from mooactor.process.objects.table import ObjectTable
from mooactor.process.objects.values import Values
from mooactor.process.openfiles import Room
from mooactor.process.place import Place
from mooactor.process.poller import Poller
from mooactor.process.server import Server
from mooactor.process.streams import Streams
from mooactor.process.system import resident_bytes
from mooactor.tensors.network import Network
from mooactor.tensors.plane import DataPlane
from mooactor.tensors.public import cuda_statistics, set_current

_SETTLE_S = 0.002


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
        reach: Reach | None = None,
    ) -> None:
        """`reach`: how processes of other hosts reach this one; None if all are here.

        Raises:
          MooError: it cannot listen as `reach` says.
        """
        self.reach = reach
        self.network = network or Network()
        if reach is not None:
            self.network = self.network.between_hosts(reach.bind, reach.ports)
        self.streams = streams or Streams(None)
        self.origin = origin  # where actors start that are not told where to
        self.plane = DataPlane(
            directory,
            process_id,
            key,
            self.network,
            memory_limit=memory_limit,
        )
        self.directory = directory
        self.key = key
        self.session_mark = session_mark(key)
        self.process_id = process_id
        self.actor_id = actor_of(process_id)
        self.lifeline_fd = lifeline.fileno()
        self.inbound: InboundTransfers | None = None  # None: all is on this host
        watched: tuple[int, ...] = ()
        if self.network.leaves_the_host:
            self.inbound = InboundTransfers(self.plane, self._nothing_ready)
            watched = (self.inbound.readable_fd,)
        try:
            self.messenger = Messenger(directory, process_id, key, watched, reach)
        except BaseException:
            self.plane.close()
            raise
        self.closed = False
        self.forked = False  # this process is a child of the one that had it
        self.server: Server | None = None
        # By process: what is to be done once it is known where that is.
        self._awaiting_place: dict[int, list[Callable[[], None]]] = {}
        self.callbacks = Callbacks()
        self.housekeeper = Housekeeper(self)
        self._put_together(lifeline)
        set_current(self.plane)
        if self.messenger.address is not None:
            self._open_to_other_hosts(self.messenger.address)

    def _put_together(self, lifeline: Lifeline) -> None:
        """The parts, each with those that it needs."""
        arm = self.housekeeper.arm
        self._handlers: dict[int, Handler] = {}
        self.poller = poller = Poller(self.messenger, self, self.inbound)
        self.agent = AgentClient(lifeline, self.wait, poller.wake)
        self.links = links = Links(self.process_id, self.messenger, self._watch)
        self.sender = sender = Sender(self.messenger, links, arm)
        self.epochs = Epochs(self.messenger.is_gone)
        self._messages = dispatch = Dispatch(
            self.key,
            self.messenger,
            self._handlers,
            sender.post_what_is_due,
            self.epochs.admit,
        )
        self.dispatch, self.dispatched = dispatch.message, dispatch.done_with
        self.objects = table = ObjectTable(links)
        spans_hosts = self.messenger.address is not None
        self.audit = Audit(links, sender, table, self.later, spans_hosts)
        self.recounts = Recounts(
            links, sender, table, self.audit, self.messenger.known, self.later
        )
        self.borrows = Borrows(self.process_id, table, self.audit, sender, arm)
        self.payloads = payloads = Payloads(
            self.plane, links, sender, self.borrows, self.inbound, arm
        )
        self.broadcaster = Broadcaster(self.process_id, payloads, sender)
        self.relay = Relay(links, sender, payloads)
        self.values = Values(
            links,
            sender,
            payloads,
            table,
            self.broadcaster,
            self.relay,
            self.later,
            poller.wake,
        )
        self.arguments = Arguments(
            self.process_id, payloads, self.values, self.broadcaster
        )
        self.caller = Caller(
            links,
            sender,
            poller,
            self.housekeeper,
            payloads,
            self.values,
            self.arguments,
            self.flush,
        )
        self.deadlocks = DeadlockDetector(
            self.process_id, poller, sender, self.caller.abandon
        )
        self.deaths = Deaths(
            links,
            self.caller,
            poller,
            self.housekeeper,
            self.directory,
            self._tidy_up,
        )
        self.agent.on_death = self.deaths.on_notice
        self.breaks = Breaks(
            links,
            self.messenger,
            poller,
            self.caller,
            self.broadcaster,
            self.relay,
            self.recounts,
            self.later,
        )
        self.room = Room(self.messenger, links, payloads)
        self._handlers |= {
            envelope.REPLY: self.caller.on_reply,
            envelope.FORWARD: self.values.on_forward,
            envelope.FETCH: self.values.on_fetch,
            envelope.BORROW: table.on_borrow,
            envelope.RELEASE: table.on_release,
            envelope.PROBE: self.deadlocks.on_probe,
            envelope.VALUE: self.values.on_value,
            envelope.REDIRECT: self.relay.on_redirect,
            envelope.ASK: self.relay.on_ask,
            envelope.TAKEN: self.broadcaster.on_taken,
            envelope.RETRY: self.values.on_retry,
            envelope.DROP: self.relay.on_drop,
            envelope.AUDIT: self.audit.on_record,
            envelope.HOLDS: self.audit.on_record,
            **dict.fromkeys(
                (envelope.UNSURE, envelope.COUNT, envelope.COUNTED),
                self.recounts.on_record,
            ),
            envelope.WATCH: lambda record: self._meet(record.call_id),
            envelope.BROKE: self.breaks.on_record,
            envelope.PROBED: lambda r: self.plane.hear(r.sender, bytes(r.payload)),
        }
        self.plane.tell = self._tell_plane

    def _tell_plane(self, peer: int, message: bytes) -> None:
        if not self.closed:
            self.sender.post(peer, envelope.PROBED, 0, message)

    def serve(self, server: Server) -> None:
        """From here on calls are taken in, by `server`."""

        def on_lost(record: envelope.Record) -> None:
            if record.sender == self.process_id:
                server.on_process_lost(record.call_id)

        self.server = self.values.producer = self.deadlocks.server = server
        self.agent.on_survey = partial(_survey, server)
        self.breaks.server = server
        self._handlers |= {
            envelope.CALL: server.on_call,
            envelope.CANCEL: lambda r: server.on_cancel(r.sender, r.call_id),
            envelope.CREDIT: lambda r: server.on_credit(
                r.sender, r.call_id, int(r.value)
            ),
            envelope.STOP: lambda r: server.on_stop(r.sender),
            envelope.LOST: on_lost,
        }

    def _watch(self, actor_id: int, incarnation: int) -> None:
        self.agent.tell(op="watch", id=actor_id, incarnation=incarnation)

    # -- other hosts -------------------------------------------------------

    def _open_to_other_hosts(self, address: str) -> None:
        """Tell the agent where this process is, and let others be found."""
        self.agent.on_located = self._on_located
        self.broadcaster.when_located = self._when_located
        self.messenger.open_ways(
            self.housekeeper, self._locate, self.breaks.of_ours, self.breaks.over
        )
        endpoint = b"" if self.inbound is None else self.plane.endpoint()
        self.agent.tell(op="reachable", address=address, endpoint=endpoint)

    def _locate(self, process_id: int) -> None:
        """Ask where a process is. A dead one is never found, but its death is told."""
        try:
            self.agent.tell(op="locate", id=process_id)
        except ActorUnavailable:
            pass  # the session is over, which ends all that waits

    def _on_located(self, message: Message) -> None:
        process_id = message["id"]
        if message.get("gone"):
            self._awaiting_place.pop(process_id, None)
            self.messenger.forget(process_id)
            return
        address = None if message["same"] else message["address"]
        if address is not None and message["endpoint"] and self.inbound is not None:
            self.plane.introduce(process_id, message["endpoint"])
        self.messenger.located(process_id, message["host"], address)
        for action in self._awaiting_place.pop(process_id, ()):
            action()

    def _when_located(self, process_id: int, action: Callable[[], None]) -> None:
        self._awaiting_place.setdefault(process_id, []).append(action)
        if self.messenger.is_located(process_id):
            for action in self._awaiting_place.pop(process_id, ()):
                action()

    def _meet(self, process_id: int) -> None:
        """Memory of this process was granted to another one on request."""
        self.links.watch(process_id)
        if self.reach is not None:
            self._locate(process_id)  # it may be on another host, which we must call

    def _nothing_ready(self) -> bool:
        return self.server is None or not self.server.has_ready()

    def read_lifeline(self) -> None:
        """Read the agent's messages; see `AgentClient.read`."""
        self.agent.read()

    def shared_segment(self, name: str, size: int) -> int:
        """See `AgentClient.shared_segment`."""
        return self.agent.shared_segment(name, size)

    # -- waiting and sending -----------------------------------------------

    def wait(self, future: Future, timeout: float | None = None) -> bool:
        """Block until `future` is done; False if `timeout` seconds passed first."""
        if future.state:
            return True
        return self.wait_some((future,), 1, lambda: future.state, timeout)

    def wait_some(
        self,
        futures: Sequence[Future],
        needed: int,
        done: Callable[[], object],
        timeout: float | None = None,
    ) -> bool:
        """Block until `done()`, which `needed` of `futures` make true; False if
        `timeout` seconds, or the deadline of the call that runs here, passed first."""
        sender = self.sender
        if sender.dirty or sender.afterwards:
            self.flush()
        deadline = None if timeout is None else perf_counter() + timeout
        caller = context.get()
        if caller is None:
            return self.poller.wait(done, deadline, futures)
        if caller.deadline is not None:
            deadline = min(deadline or caller.deadline, caller.deadline)
        return self.deadlocks.wait(caller, futures, needed, done, deadline)

    def flush(self) -> None:
        """Send every record that waits for company."""
        self.sender.flush()
        self.objects.sweep()

    def flush_if_due(self) -> None:
        """As `flush`, but quick if nothing is known to be due. For a thread that is
        about to wait; other waiting records leave when the poller's leader sleeps."""
        sender = self.sender
        if sender.dirty or sender.afterwards or self.objects.dropped:
            self.flush()

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Call `action` in so much time, in the housekeeper's thread. It must be
        quick."""
        self.housekeeper.at(perf_counter() + seconds, action)

    def look(self) -> bool:
        """Dispatch arrived messages, if no other thread does; whether there were
        any."""
        return self.poller.try_drain()

    def is_idle(self) -> bool:
        """Whether nothing is due that nobody waits for."""
        return not (
            len(self.caller)
            or len(self.values)
            or len(self.objects)
            or self.sender.dirty
            or self.sender.afterwards
            or (self.inbound is not None and self.inbound.busy)
        )

    # -- the end -----------------------------------------------------------

    def over(self, what: str) -> ActorUnavailable:
        """The error of `what`, which needs this runtime, once that is closed."""
        if self.forked:
            return forked_error(what)
        return ActorUnavailable(
            f"{what}: its session has ended; create it again in this one",
            delivered=False,
        )

    def _tidy_up(self, death: Death) -> None:
        """An actor's process is dead, and the calls to it have ended: forget it."""
        old = death.process_id
        self.messenger.forget(old)
        self.breaks.process_lost(old)
        self._awaiting_place.pop(old, None)
        self.epochs.forget(old)
        self.payloads.forget_grants(old)
        dead = every_incarnation(old) if death.following is None else old
        self.objects.process_lost(dead)
        self.audit.lender_lost(dead)
        self.broadcaster.process_lost(old)
        self.relay.process_lost(old)
        self.plane.peer_lost(old)
        if self.server is not None:
            # The mailbox belongs to the thread that dispatches.
            self.messenger.put(envelope.pack_record(envelope.LOST, old))

    def disown(self) -> None:
        """In a process that was forked from this one: see `forks`."""
        forks.disown(self)

    def close(self, linger_ms: int = 500) -> None:
        """End it: pending futures fail with `ActorUnavailable`."""
        if self.closed:
            return
        self._settle(linger_ms / 1000)
        self.closed = self.sender.ended = self.agent.ended = True
        self.flush()
        self.caller.close()
        self.values.close()
        self.objects.close()
        self.broadcaster.close()
        self.relay.close()
        if self.inbound is not None:
            self.inbound.close()
        self.housekeeper.close()
        self.callbacks.close()
        self.poller.close()
        self.agent.close()
        self.messenger.close(linger_ms)
        set_current(None)
        self.plane.close()
        # Data that was received keeps it alive; the runtime must not.
        self.payloads.close()
        del self.plane
        self.inbound = None

    def _settle(self, most_s: float) -> None:
        """What was sent to processes that are being connected leaves first."""
        end = perf_counter() + most_s
        self.flush()
        while self.messenger.waiting() and perf_counter() < end:
            sleep(_SETTLE_S)

    def statistics(self) -> dict[str, Any]:
        """Counts that should return to zero, and the way to each peer; see
        `moo.stats()`."""
        self.objects.sweep()
        return {
            "calls_pending": len(self.caller),
            "values_pending": len(self.values),
            "arriving": 0 if self.inbound is None else len(self.inbound),
            "objects": len(self.objects),
            "relayed": len(self.broadcaster) + len(self.relay),
            "links": len(self.links),
            "dropped": self._messages.dropped + self.epochs.late,
            "strangers": 0 if self.closed else self.messenger.strangers,
            "transport": str(self.network),
            "memory": {} if self.closed else self.plane.statistics(),
            "cuda": cuda_statistics(),
            "peers": [] if self.closed else self._peers(),
        }

    def _peers(self) -> list[dict[str, Any]]:
        labels = self.links.labels()
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


def _survey(server: Server) -> Message:
    """What this process alone knows of itself, for the agent."""
    return {"mailbox": server.queued(), "memory": resident_bytes()}
