# SPDX-License-Identifier: MIT
"""The processes of other hosts: where they are, and the end of a connection to one.

**Where they are** (`Locator`). The agent knows. It is asked once there is something to
send, and answers as soon as the process exists; it also tells of processes that asked
for this one. An answer goes first to the data plane, then to the messenger, then to the
actions that wait for it.

Replies are handled in the thread that reads the lifeline.

**Breaks**: a connection with a process of another host broke, and both live.
The death of the other process breaks it, too, and its cause is told by the agent. So a
break counts as one when the next connection stands, or when there has been no news of a
death for `NEWS_S`.

Each of the two has a connection to the other (see `ways`). If one of these breaks,
records may be lost: calls or replies, items or credits, values, borrows. The process
whose connection it was tells the other by a BROKE record, the first that it sends over
the next one. Each ends what was under way between them, in either direction:

* calls whose reply has not come end with `ActorUnavailable`, ``delivered=None``, or are
  sent again with ``retries=``; so do streams, and borrowed Refs that are read here.
  Where our own connection broke they are sent again at once, to wait with later calls
  for the next one: so calls start in the order in which they were made. Some may not
  have left yet and wait there, too: BROKE names the next call id, and the receiver
  passes over calls with lower ones that come after it;
* streams that it produces for the other are closed; other calls of the other go on,
  and their replies are dropped by a caller that has given up waiting;
* where no connection can be made, the replies of calls that have arrived are lost as
  well. The agents tell the other process, which does as if the BROKE had come;
* values to be taken from the other, as holder, are asked of their owners; an owner has
  others send what it should have sent as holder, see `broadcast`. Values that it should
  send otherwise are asked of the callers that have handed their Refs on: see
  `handovers`.

All of that happens in the housekeeper's thread, so two breaks are handled one after the
other; what concerns the mailbox, in the poller's.

Nothing is ended whose last record has come. Holds that were lent or given back in a
record that was lost are looked after by `objects.audit`. Memory that was lent
in one is taken back: see `objects.payloads`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from mooactor.control import bodies, envelope
from mooactor.control.complaints import say
from mooactor.control.links import Links
from mooactor.control.messages import readable
from mooactor.control.messenger import Messenger
from mooactor.errors import ActorUnavailable
from mooactor.process.agent_client import AgentClient
from mooactor.process.calls import Server
from mooactor.process.objects.audit import Audit
from mooactor.process.objects.broadcast import Relay
from mooactor.process.objects.handovers import Handovers
from mooactor.process.objects.payloads import Payloads
from mooactor.process.objects.values import Values
from mooactor.process.poller import Poller
from mooactor.process.protocol import CannotReach, Gone, Locate, Located, Unreached

if TYPE_CHECKING:
    from mooactor.process.caller import Caller


class Locator:
    """See the module. On one host nothing is ever asked."""

    def __init__(
        self,
        agent: AgentClient,
        links: Links,
        messenger: Messenger,
        introduce: Callable[[int, bytes], None],
        spans_hosts: bool,
    ) -> None:
        """`introduce`: tell the data plane a process's endpoint."""
        self._agent = agent
        self._links = links
        self._messenger = messenger
        self._introduce = introduce
        self._spans_hosts = spans_hosts
        # By process: what is to be done once it is known where that is.
        self._awaiting: dict[int, list[Callable[[], None]]] = {}

    def locate(self, process_id: int) -> None:
        """Ask where a process is. A dead one is never found, but its death is told."""
        try:
            self._agent.tell(Locate(process_id))
        except ActorUnavailable:
            pass  # the session is over, which ends all that waits

    def meet(self, process_id: int) -> None:
        """Memory of this process was granted to another one on request."""
        self._links.watch(process_id)
        if self._spans_hosts:
            self.locate(process_id)  # it may be on another host, which we must call

    def when_located(self, process_id: int, action: Callable[[], None]) -> None:
        """Call `action` once it is known where the process is, or now."""
        self._awaiting.setdefault(process_id, []).append(action)
        if self._messenger.is_located(process_id):
            self._act(process_id)

    def on_located(self, message: Located | Gone) -> None:
        """The agent's answer, or its notice of one who asked for this process."""
        process_id = message.id
        if isinstance(message, Gone):
            self.forget(process_id)
            self._messenger.forget(process_id)
            return
        if message.caller:  # it asked for us, to call us
            self._links.watch(process_id)
        address = None if message.same else message.address
        if address is not None and message.endpoint:
            self._introduce_data(message)
        self._messenger.located(process_id, message.host, address, message.caller)
        self._act(process_id)

    def _introduce_data(self, message: Located) -> None:
        """A process of another session may be of another version: it can be called all
        the same, and the use of its data says that it has no endpoint."""
        try:
            self._introduce(message.id, message.endpoint)
        except ValueError as error:
            where = f"host {message.host!r:.80}"
            say(f"mooactor: data of {where} cannot be used here: {error}")

    def forget(self, process_id: int) -> None:
        """It is dead: drop what waits for it."""
        self._awaiting.pop(process_id, None)

    def _act(self, process_id: int) -> None:
        for action in self._awaiting.pop(process_id, ()):
            action()


#: Longer than a host's death takes to be known.
NEWS_S = 5.0


class _Break(NamedTuple):
    why: str
    mark: int  # later calls were not sent over the connection that broke
    latest: int  # the last call of the other process that came over its own


class Breaks:
    """Those of one process."""

    #: The callee's side, in an actor's process.
    server: Server | None = None

    def __init__(
        self,
        links: Links,
        messenger: Messenger,
        poller: Poller,
        caller: Caller,
        payloads: Payloads,
        values: Values,
        handovers: Handovers,
        relay: Relay,
        audit: Audit,
        later: Callable[[float, Callable[[], None]], None],
        tell_agent: Callable[..., None],
    ) -> None:
        """`later`: call in so many seconds, in the housekeeper's thread."""
        self._links = links
        self._messenger = messenger
        self._poller = poller
        self._caller = caller
        self._payloads = payloads
        self._values = values
        self._handovers = handovers
        self._relay = relay
        self._audit = audit
        self._later = later
        self._tell_agent = tell_agent
        self._open: dict[int, _Break] = {}  # by process; the housekeeper's

    def of_ours(self, process_id: int, why: str, delivered: bool | None) -> None:
        """Our connection to a process broke, or could not be made. In the
        housekeeper's thread."""
        self._poller.try_drain()  # what has come has come
        link = self._links.of_process(process_id)
        latest = 0 if self.server is None else self.server.latest_call_of(process_id)
        with contextlib.nullcontext() if link is None else link.sending_again():
            mark = self._caller.mark()
            tell = envelope.pack_record(
                envelope.BROKE, latest, bodies.pack_numbers(mark)
            )
            self._messenger.peer(process_id).lead(tell)  # over the next one
            self._ask_what_came(process_id)
            if delivered is None and link is not None and link.cause is None:
                self._caller.losses.send_early(link)
        if delivered is None:
            self._open[process_id] = found = _Break(why, mark, latest)
            self._later(NEWS_S, partial(self._conclude, process_id, found))
        else:
            self._act_on(process_id, why, delivered, mark, latest)
            self._have_told(process_id, latest, mark)

    def _ask_what_came(self, process_id: int) -> None:
        ways = self._messenger.ways
        way = None if ways is None else ways.known(process_id)
        if way is not None:
            self._payloads.connection_broke(process_id, stood=way.stood)

    def _have_told(self, process_id: int, latest: int, mark: int) -> None:
        """Have the agents tell a process that this one has no connection to it."""
        ways = self._messenger.ways
        way = None if ways is None else ways.known(process_id)
        if way is not None:
            with contextlib.suppress(ActorUnavailable):  # the session is over
                why = readable(way.failure, 256)
                self._tell_agent(Unreached(process_id, latest, mark, why))

    def unreached(self, message: CannotReach) -> None:
        """A process of another host has no connection to this one, an agent says; its
        replies, if any, were lost. In the thread that reads the lifeline."""
        process_id = message.id
        why = (
            f"host {message.host} has no connection to here, at "
            f"{message.address} ({message.why}): open that port, or listen where "
            "that host comes to, with MOOACTOR_BIND and MOOACTOR_PORTS of a program, "
            "--bind and --ports of mooactor host"
        )
        self._later(0.0, partial(self._theirs, process_id, why, message.latest))
        payload = bodies.pack_numbers(process_id, message.mark)
        self._messenger.put(envelope.pack_record(envelope.BROKE, 0, payload))

    def over(self, process_id: int) -> None:
        """The next connection to a process stands, so it lives."""
        found = self._open.get(process_id)
        if found is not None:
            self._conclude(process_id, found)

    def _conclude(self, process_id: int, found: _Break) -> None:
        if self._open.get(process_id) is found:
            del self._open[process_id]
            self._act_on(process_id, found.why, None, found.mark, found.latest)

    def process_lost(self, process_id: int) -> None:
        """It is dead, which says more than that its connection broke."""
        self._open.pop(process_id, None)

    def _act_on(
        self,
        process_id: int,
        why: str,
        delivered: bool | None,
        mark: int,
        latest: int,
    ) -> None:
        self._end(process_id, why, delivered, mark, theirs=False)
        payload = bodies.pack_numbers(latest)
        self._messenger.put(envelope.pack_record(envelope.BROKE, process_id, payload))

    def on_record(self, record: envelope.Record) -> None:
        """A process's connection to this one broke. In the poller's thread."""
        if record.sender != self._messenger.process_id:
            process_id = record.sender
            (mark,) = bodies.numbers(record.payload, 1)
            why = f"its connection to here{self._where(process_id)} broke"
            self._later(0.0, partial(self._theirs, process_id, why, record.call_id))
            self._pass_over(process_id, mark)
        elif record.call_id == 0:  # from `unreached`
            self._pass_over(*bodies.numbers(record.payload, 2))
        elif self.server is not None:
            (latest,) = bodies.numbers(record.payload, 1)
            self.server.on_connection_broke(record.call_id, latest)

    def _theirs(self, process_id: int, why: str, latest: int) -> None:
        self._end(process_id, why, None, latest, theirs=True)

    def _pass_over(self, process_id: int, mark: int) -> None:
        if self.server is not None:
            known = self.server.latest_call_of(process_id)
            self.server.on_connection_broke(process_id, known)
            self.server.pass_over(process_id, mark)

    def _where(self, process_id: int) -> str:
        ways = self._messenger.ways
        way = None if ways is None else ways.known(process_id)
        return "" if way is None else f", from host {way.host},"

    def _end(
        self,
        process_id: int,
        why: str,
        delivered: bool | None,
        latest: int,
        *,
        theirs: bool,
    ) -> None:
        self._poller.try_drain()  # what has come has come
        link = self._links.of_process(process_id)
        if link is not None and link.cause is None:
            self._caller.losses.connection_broke(link, why, delivered, latest)
        self._values.connection_broke(process_id, why, delivered, theirs=theirs)
        self._handovers.connection_broke(process_id)
        self._relay.process_lost(process_id)
        self._audit.connection_broke(process_id)
        self._poller.wake()
