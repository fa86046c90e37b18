# SPDX-License-Identifier: MIT
"""Breaks: a connection with a process of another host broke, and both live.

Each of the two has a connection to the other (see `ways`). If one of these breaks,
records may be lost: calls or replies, items or credits, values, borrows. The process
whose connection it was tells the other by a BROKE record, the first that it sends over
the next one. Each ends what was under way between them, in either direction:

* calls whose reply has not come end with `ActorUnavailable`, ``delivered=None``, or are
  sent again with ``retries=``; so do streams, and Refs whose values were on their way;
* streams that it produces for the other are closed; other calls of the other go on,
  and their replies are dropped by a caller that has given up waiting;
* values to be taken from the other, as holder, are asked of their owners.

All of that happens in the housekeeper's thread, so two breaks are handled one after the
other; what concerns the mailbox, in the poller's.

Nothing is ended whose last record has come. Borrows are the exception: one that was
lent or given back in a record that was lost is miscounted, so its value may live until
the borrower's end, or be gone when the borrower asks for it, which is an error there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from mooactor.control import envelope
from mooactor.control.links import Links
from mooactor.control.messenger import Messenger
from mooactor.process.objects.broadcast import Broadcaster
from mooactor.process.objects.relay import Relay
from mooactor.process.poller import Poller
from mooactor.process.server import Server

if TYPE_CHECKING:
    from mooactor.process.caller import Caller


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
        broadcaster: Broadcaster,
        relay: Relay,
        soon: Callable[[Callable[[], None]], None],
    ) -> None:
        """`soon`: call in the housekeeper's thread."""
        self._soon = soon
        self._links = links
        self._messenger = messenger
        self._poller = poller
        self._caller = caller
        self._broadcaster = broadcaster
        self._relay = relay

    def of_ours(self, process_id: int, why: str, delivered: bool | None) -> None:
        """Our connection to a process broke, or could not be made. In the
        housekeeper's thread."""
        latest = 0 if self.server is None else self.server.latest_call_of(process_id)
        tell = envelope.pack_record(envelope.BROKE, latest)
        self._messenger.peer(process_id).send(tell)  # it waits for the next one
        self._end(process_id, why, delivered)
        payload = envelope.pack_numbers(latest)
        self._messenger.put(envelope.pack_record(envelope.BROKE, process_id, payload))

    def on_record(self, record: envelope.Record) -> None:
        """A process's connection to this one broke. In the poller's thread."""
        if record.sender == self._messenger.process_id:
            (latest,) = envelope.numbers(record.payload, 1)
            if self.server is not None:
                self.server.on_connection_broke(record.call_id, latest)
            return
        process_id = record.sender
        why = f"its connection to here{self._where(process_id)} broke"
        self._soon(partial(self._end, process_id, why, None, record.call_id))
        if self.server is not None:
            known = self.server.latest_call_of(process_id)
            self.server.on_connection_broke(process_id, known)

    def _where(self, process_id: int) -> str:
        ways = self._messenger.ways
        way = None if ways is None else ways.known(process_id)
        return "" if way is None else f", from host {way.host},"

    def _end(
        self,
        process_id: int,
        why: str,
        delivered: bool | None,
        latest: float = math.inf,
    ) -> None:
        self._poller.try_drain()  # what has come has come
        link = self._links.of_process(process_id)
        if link is not None and link.cause is None:
            self._caller.connection_broke(link, why, delivered, latest)
        self._broadcaster.process_lost(process_id)
        self._relay.process_lost(process_id)
        self._poller.wake()
