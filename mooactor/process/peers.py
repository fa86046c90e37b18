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
from mooactor.control.messages import readable
from mooactor.errors import ActorUnavailable
from mooactor.process.protocol import CannotReach, Gone, Locate, Located, Unreached

if TYPE_CHECKING:
    from mooactor.process.runtime import Runtime


class Locator:
    """See the module. On one host nothing is ever asked."""

    def __init__(self, parts: Runtime) -> None:
        self._parts = parts
        # By process: what is to be done once it is known where that is.
        self._awaiting: dict[int, list[Callable[[], None]]] = {}

    def locate(self, process_id: int) -> None:
        """Ask where a process is. A dead one is never found, but its death is told."""
        try:
            self._parts.agent.tell(Locate(process_id))
        except ActorUnavailable:
            pass  # the session is over, which ends all that waits

    def meet(self, process_id: int) -> None:
        """Memory of this process was granted to another one on request."""
        self._parts.links.watch(process_id)
        if self._parts.reach is not None:
            self.locate(process_id)  # it may be on another host, which we must call

    def when_located(self, process_id: int, action: Callable[[], None]) -> None:
        """Call `action` once it is known where the process is, or now."""
        self._awaiting.setdefault(process_id, []).append(action)
        if self._parts.messenger.is_located(process_id):
            self._act(process_id)

    def on_gone(self, message: Gone) -> None:
        """The agent's answer: it will never be there."""
        self.forget(message.id)
        self._parts.messenger.forget(message.id)

    def on_located(self, message: Located) -> None:
        """The agent's answer, or its notice of one who asked for this process."""
        process_id = message.id
        if message.caller:  # it asked for us, to call us
            self._parts.links.watch(process_id)
        address = None if message.same else message.address
        if address is not None and message.endpoint:
            self._introduce_data(message)
        self._parts.messenger.located(process_id, message.host, address, message.caller)
        self._act(process_id)

    def _introduce_data(self, message: Located) -> None:
        """A process of another session may be of another version: it can be called all
        the same, and the use of its data says that it has no endpoint."""
        try:
            self._parts.introduce(message.id, message.endpoint)
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

    def __init__(self, parts: Runtime) -> None:
        self._parts = parts
        self._open: dict[int, _Break] = {}  # by process; the housekeeper's

    def of_ours(self, process_id: int, why: str, delivered: bool | None) -> None:
        """Our connection to a process broke, or could not be made. In the
        housekeeper's thread."""
        parts, server = self._parts, self._parts.server
        parts.poller.try_drain()  # what has come has come
        link = parts.links.of_process(process_id)
        way = parts.messenger.way_to(process_id)
        latest = 0 if server is None else server.latest_call_of(process_id)
        with contextlib.nullcontext() if link is None else link.sending_again():
            mark = parts.caller.mark()
            body = bodies.pack_numbers(mark)
            tell = envelope.pack_record(envelope.BROKE, latest, body)
            parts.messenger.peer(process_id).lead(tell)  # over the next one
            if way is not None:
                parts.payloads.connection_broke(process_id, stood=way.stood)
            if delivered is None and link is not None and link.cause is None:
                parts.caller.losses.send_early(link)
        if delivered is None:
            self._open[process_id] = found = _Break(why, mark, latest)
            parts.later(NEWS_S, partial(self._conclude, process_id, found))
        else:
            self._act_on(process_id, why, delivered, mark, latest)
            self._have_told(process_id, latest, mark)

    def _have_told(self, process_id: int, latest: int, mark: int) -> None:
        """Have the agents tell a process that this one has no connection to it."""
        way = self._parts.messenger.way_to(process_id)
        if way is not None:
            with contextlib.suppress(ActorUnavailable):  # the session is over
                why = readable(way.failure, 256)
                self._parts.agent.tell(Unreached(process_id, latest, mark, why))

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
        self._parts.later(0.0, partial(self._theirs, process_id, why, message.latest))
        payload = bodies.pack_numbers(process_id, message.mark)
        self._parts.messenger.put(envelope.pack_record(envelope.BROKE, 0, payload))

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
        body = bodies.pack_numbers(latest)
        record = envelope.pack_record(envelope.BROKE, process_id, body)
        self._parts.messenger.put(record)

    def on_record(self, record: envelope.Record) -> None:
        """A process's connection to this one broke. In the poller's thread."""
        if record.sender != self._parts.messenger.process_id:
            process_id = record.sender
            (mark,) = bodies.numbers(record.payload, 1)
            way = self._parts.messenger.way_to(process_id)
            where = "" if way is None else f", from host {way.host},"
            why = f"its connection to here{where} broke"
            theirs = partial(self._theirs, process_id, why, record.call_id)
            self._parts.later(0.0, theirs)
            self._pass_over(process_id, mark)
        elif record.call_id == 0:  # from `unreached`
            self._pass_over(*bodies.numbers(record.payload, 2))
        elif self._parts.server is not None:
            (latest,) = bodies.numbers(record.payload, 1)
            self._parts.server.on_connection_broke(record.call_id, latest)

    def _theirs(self, process_id: int, why: str, latest: int) -> None:
        self._end(process_id, why, None, latest, theirs=True)

    def _pass_over(self, process_id: int, mark: int) -> None:
        server = self._parts.server
        if server is not None:
            known = server.latest_call_of(process_id)
            server.on_connection_broke(process_id, known)
            server.pass_over(process_id, mark)

    def _end(
        self,
        process_id: int,
        why: str,
        delivered: bool | None,
        latest: int,
        *,
        theirs: bool,
    ) -> None:
        parts = self._parts
        parts.poller.try_drain()  # what has come has come
        link = parts.links.of_process(process_id)
        if link is not None and link.cause is None:
            parts.caller.losses.connection_broke(link, why, delivered, latest)
        parts.values.connection_broke(process_id, why, delivered, theirs=theirs)
        parts.handovers.connection_broke(process_id)
        parts.relay.process_lost(process_id)
        parts.audit.connection_broke(process_id)
        parts.poller.wake()
