# SPDX-License-Identifier: MIT
"""One process's part in a session, put together from its parts.

The driver has one and every actor's process has one. `Runtime._put_together` shows the
dependencies of the parts, and `dispatch` which of them takes which kind of record:

* `messenger` has the sockets, `links` the actors that are known, `sender` the records
  to be sent; `poller` reads, and `dispatch` hands each record on;
* `caller` has the calls that this process made, `server` (in an actor's process; see
  `actor.worker`) those that it takes;
* `values`, `handovers` and `objects` have the values of Refs, on their way to here, to
  others and for later; `borrows` tells their holders,
  `payloads` attaches tensors to records, and `plane` has the memory of tensors;
* `agent` is the lifeline to the host's agent, which tells of `deaths`;
* in a session of several hosts, `messenger` has the connections to the others, `breaks`
  ends what a broken one has lost, and `locator` asks the agent where each process is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter, sleep
from typing import Any

from mooactor.control import envelope, script
from mooactor.control.envelope import Epochs
from mooactor.control.keys import actor_of, every_incarnation, session_mark
from mooactor.control.lifeline import Lifeline
from mooactor.control.links import Links
from mooactor.control.messenger import Messenger
from mooactor.control.reach import Reach
from mooactor.control.sender import Sender
from mooactor.errors import ActorUnavailable, MooError
from mooactor.process import current
from mooactor.process.agent_client import AgentClient
from mooactor.process.arguments import Arguments
from mooactor.process.caller import Caller
from mooactor.process.calls import Server, context
from mooactor.process.current import forked_error
from mooactor.process.deadlock import DeadlockDetector
from mooactor.process.deaths import Death, Deaths
from mooactor.process.dispatch import (
    Dispatch,
    Handler,
    handlers_of_an_actor,
    handlers_of_every_process,
)
from mooactor.process.environment import Place, Streams
from mooactor.process.files import Room
from mooactor.process.housekeeper import Callbacks, Housekeeper
from mooactor.process.objects.audit import Audit
from mooactor.process.objects.borrow import Borrows
from mooactor.process.objects.broadcast import Broadcaster, Relay
from mooactor.process.objects.future import Future
from mooactor.process.objects.handovers import Handovers
from mooactor.process.objects.inbound import InboundTransfers
from mooactor.process.objects.payloads import Payloads
from mooactor.process.objects.results import Results
from mooactor.process.objects.table import ObjectTable
from mooactor.process.objects.values import Values
from mooactor.process.peers import Breaks, Locator
from mooactor.process.poller import Poller
from mooactor.process.protocol import (
    CannotReach,
    Died,
    Gone,
    Located,
    Reachable,
    Survey,
    Surveyed,
    Watch,
)
from mooactor.process.system import resident_bytes
from mooactor.tensors.limits import refusal_of_threads
from mooactor.tensors.network import Network
from mooactor.tensors.plane import DataPlane
from mooactor.tensors.public import cuda_statistics, set_current

_SETTLE_S = 0.002


class Runtime:
    """See the module. `close` ends it; afterwards every wait has ended, too."""

    agent: AgentClient
    arguments: Arguments
    housekeeper: Housekeeper
    links: Links
    payloads: Payloads
    poller: Poller
    results: Results
    sender: Sender

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
        driver: int | None = None,
    ) -> None:
        """`reach`: how processes of other hosts reach this one; None if all are here.
        `driver`: the driver's process, if that is another one.

        Raises:
          AuthError: it would listen where the cluster's key does not serve.
          MooError: it cannot listen as `reach` says.
        """
        if (why := refusal_of_threads()) is not None:
            raise MooError(f"this process cannot take part in a session: {why}")
        self.reach = reach
        self.network = network or Network()
        if reach is not None:
            self.network = self.network.between_hosts(reach.bind, reach.ports)
            reach.check(self.network.bind or reach.bind)
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
        self._driver = process_id if driver is None else driver
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
        self.callbacks = Callbacks()
        self.housekeeper = Housekeeper(self)
        self._put_together(lifeline)
        set_current(self.plane)
        if self.messenger.address is not None:
            self._open_to_other_hosts()

    def _put_together(self, lifeline: Lifeline) -> None:
        """The parts, each with those that it needs."""
        self._handlers: dict[int, Handler] = {}
        self.poller = poller = Poller(self.messenger, self, self.inbound)
        self.agent = AgentClient(lifeline, self.wait, poller.wake)
        if self.messenger.address is not None:
            self._tell_where_we_are(self.messenger.address)
        self.links = links = Links(
            self.process_id, self._driver, self.messenger, self._watch
        )
        self.locator = Locator(self)
        self.sender = sender = Sender(self.messenger, links, self.housekeeper.arm)
        script.begin(
            self.process_id,
            lambda other, keys: sender.post_later(other, envelope.KNOWS, 0, keys),
        )
        self.epochs = Epochs(self.messenger.is_gone)
        self.messages = dispatch = Dispatch(
            self.key,
            self.messenger,
            self._handlers,
            sender.do_what_is_due,
            self.epochs.admit,
        )
        self.dispatch, self.dispatched = dispatch.message, dispatch.done_with
        self.objects = table = ObjectTable(links)
        spans_hosts = self.messenger.address is not None
        self.audit = Audit(
            links, sender, table, self.messenger.known, self.later, spans_hosts
        )
        self.borrows: Borrows = Borrows(self.process_id, table, self.audit, sender)
        self.payloads = payloads = Payloads(
            self.plane, links, sender, self.borrows, self.inbound, self.later
        )
        self.broadcaster = Broadcaster(self.process_id, payloads, sender)
        self.relay = Relay(links, sender, payloads, self.later, self.look)
        self.values = Values(
            links, sender, payloads, self.relay, self.later, poller.wake
        )
        self.results = Results(
            links,
            sender,
            payloads,
            table,
            self.broadcaster,
            self.values,
            self.wait,
            poller.wake,
        )
        self.handovers = Handovers(
            links, sender, payloads, table, self.broadcaster, spans_hosts
        )
        self.arguments = Arguments(
            self.process_id, payloads, self.handovers, self.broadcaster
        )
        self.caller = caller = Caller(self)
        self.deadlocks = DeadlockDetector(
            self.process_id, poller, sender, caller.abandon
        )
        self.deaths = Deaths(self)
        self.agent.on(Died, self.deaths.on_notice)
        self.breaks = Breaks(self)
        self.room = Room(self)
        self._handlers |= handlers_of_every_process(self)
        self.plane.tell = self._tell_plane

    def _tell_plane(self, peer: int, message: bytes) -> None:
        if not self.closed:
            self.sender.post(peer, envelope.PROBED, 0, message)

    def expect_calls(self) -> None:
        """Those that come before `serve` wait for it."""
        self.messages.expect()

    def serve(self, server: Server) -> None:
        """From here on calls are taken in, by `server`."""
        self.server = self.handovers.producer = self.deadlocks.server = server
        self.agent.on(
            Surveyed,
            lambda asked: self.agent.tell(
                Survey(asked.number, server.queued(), resident_bytes())
            ),
        )
        self.messages.begin(handlers_of_an_actor(self.process_id, server))

    def _watch(self, actor_id: int, incarnation: int) -> None:
        self.agent.tell(Watch(actor_id, incarnation))

    # -- other hosts -------------------------------------------------------

    def _tell_where_we_are(self, address: str) -> None:
        """From here on others may connect: before all is put together, so that this
        and the way of the news cost no time one after the other."""
        endpoint = b"" if self.inbound is None else self.plane.endpoint()
        self.agent.tell(Reachable(address, endpoint))

    def _open_to_other_hosts(self) -> None:
        """Let others be found."""
        self.agent.on(Located, self.locator.on_located)
        self.agent.on(Gone, self.locator.on_gone)
        self.agent.on(CannotReach, self.breaks.unreached)
        self.broadcaster.when_located = self.locator.when_located
        self.messenger.open_ways(
            self.housekeeper,
            self.locator.locate,
            self.breaks.of_ours,
            self.breaks.over,
        )

    def introduce(self, process_id: int, endpoint: bytes) -> None:
        if self.inbound is not None:
            self.plane.introduce(process_id, endpoint)

    def _nothing_ready(self) -> bool:
        return self.server is None or not self.server.has_ready()

    def group_memory(self, group: str, share: str | None) -> list[int]:
        """See `AgentClient.group_memory`."""
        return self.agent.group_memory(group, share)

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
        if caller is not None and caller.deadline is not None:
            deadline = min(deadline or caller.deadline, caller.deadline)
        if caller is None or timeout is not None:  # which ends by itself
            return self.poller.wait(done, deadline, futures)
        return self.deadlocks.wait(caller, futures, needed, done, deadline)

    def flush(self) -> None:
        """Send every record that waits for company."""
        self.sender.flush()

    def flush_if_due(self) -> None:
        """As `flush`, but quick if nothing is known to be due. For a thread that is
        about to wait; other waiting records leave when the poller's leader sleeps."""
        sender = self.sender
        if sender.dirty or sender.afterwards:
            self.flush()

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Call `action` in so much time, in the housekeeper's thread. It must be
        quick."""
        self.housekeeper.after(seconds, action)

    def look(self) -> bool:
        """Dispatch arrived messages, if no other thread does; whether there were
        any."""
        return self.poller.try_drain()

    def is_idle(self) -> bool:
        """Whether nothing is due that nobody waits for."""
        return not (
            len(self.caller)
            or len(self.values)
            or len(self.handovers)
            or len(self.objects)
            or len(self.broadcaster)
            or self.sender.dirty
            or self.sender.afterwards
            or (self.inbound is not None and self.inbound.busy)
        )

    # -- the end -----------------------------------------------------------

    def over(self, what: str, *, was_sent: bool = False) -> ActorUnavailable:
        """The error of `what`, which needs this runtime, once that is closed.
        `was_sent`: it is a call that was, so nobody knows any more whether it ran."""
        if self.forked:
            return forked_error(what)
        because = self.agent.because
        why = f", because {because}" if because else ""
        return ActorUnavailable(
            f"{what}: its session has ended{why}; create it again in this one",
            delivered=None if was_sent else False,
        )

    def tidy_up(self, death: Death) -> None:
        """An actor's process is dead, and the calls to it have ended: forget it."""
        old = death.process_id
        self.messenger.forget(old)
        self.breaks.process_lost(old)
        self.locator.forget(old)
        self.epochs.forget(old)
        self.payloads.forget_grants(old)
        script.lost(old, for_good=death.following is None)
        dead = every_incarnation(old) if death.following is None else old
        self.objects.process_lost(dead)
        self.audit.lender_lost(dead)
        self.handovers.process_lost(dead)
        self.broadcaster.process_lost(old)
        self.relay.process_lost(old)
        self.plane.peer_lost(old)
        if self.server is not None:
            # The mailbox belongs to the thread that dispatches.
            self.messenger.put(envelope.pack_record(envelope.LOST, old))

    def disown(self) -> None:
        """In a process that was forked from this one: see `current`."""
        current.disown(self)

    def close(self, linger_ms: int = 500) -> None:
        """End it: pending futures fail with `ActorUnavailable`."""
        if self.closed:
            return
        self._settle(linger_ms / 1000)
        self.closed = self.sender.ended = self.agent.ended = True
        self.flush()
        self.caller.close()
        self.values.close(self.agent.session_ended)
        self.results.close(self.agent.session_ended)
        self.handovers.close()
        self.objects.close()
        self.broadcaster.close()
        self.relay.close()
        if self.inbound is not None:
            self.inbound.close(self.agent.session_ended)
        self.housekeeper.close()
        self.callbacks.close()
        self.poller.close()
        self.agent.close()
        self.messenger.close(linger_ms)
        set_current(None)
        script.begin()
        self.plane.close()
        # Data that was received keeps it alive; the runtime must not.
        self.payloads.close()
        del self.plane
        self.inbound = None

    def _settle(self, most_s: float) -> None:
        """Records for processes that are being connected leave first."""
        end = perf_counter() + most_s
        self.flush()
        while self.messenger.waiting() and perf_counter() < end:
            sleep(_SETTLE_S)

    def statistics(self) -> dict[str, Any]:
        """Counts that should return to zero, and the way to each peer; see
        `moo.stats()`.

        They are read from any thread and without a lock: each was right at some moment
        of the call. After `close` those that need the sockets or the data plane are
        empty.
        """
        self.sender.do_what_is_due()
        return {
            "calls_pending": len(self.caller),
            "values_pending": len(self.values),
            "arriving": 0 if self.inbound is None else len(self.inbound),
            "objects": len(self.objects),
            "relayed": len(self.broadcaster) + len(self.relay) + len(self.handovers),
            "links": len(self.links),
            "dropped": self.messages.dropped + self.epochs.late,
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
