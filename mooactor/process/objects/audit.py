# SPDX-License-Identifier: MIT
"""Holds that owner and holder may see differently, because a record was lost.

A lender tells the owner of a hold (BORROW), and the receiver by its message; `table`
has the protocol. Two things can separate the two:

* **The lender is killed in between.** Its receivers hear of the death, as its owners
  do.
* **A connection breaks**, while both of its ends live. A BORROW, a RELEASE, or a
  message with Refs in it may have been lost. Both ends tell all processes that
  they know (UNSURE): at once, and again `ARRIVED_S` later, when all has come that was
  sent before one knew of the break.

In both cases two things make it right again, for the holds concerned:

1. Each holder *claims* what it has: it sends the BORROW itself. The owner enters it
   unless it has it.
2. Each owner *audits* what it has entered: it asks the holders (AUDIT), and they
   give back (RELEASE) what they do not have. Nothing that may still be on its way is
   asked for: the question comes after the dead lender's messages have been read, or
   `ARRIVED_S` after the break.

A value whose only BORROW was lost may be freed before 1. Its holder then gets
`ActorUnavailable`; so it does if a message with a Ref takes longer than `ARRIVED_S`,
because a connection was broken for so long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from mooactor.control import bodies, envelope
from mooactor.control.keys import died_with
from mooactor.control.links import Links
from mooactor.control.sender import Sender
from mooactor.process.objects.holds import Living

if TYPE_CHECKING:
    from mooactor.process.objects.holds import Hold
    from mooactor.process.objects.table import ObjectTable

#: The time that a dead process's messages may lie in an inbox unread.
INBOX_S = 0.1
ARRIVED_S = 10.0

Entered = tuple[int, int, int]  # object id, number of the hold, holder


class Audit:
    """One per process, in its parts as holder and as owner."""

    def __init__(
        self,
        links: Links,
        sender: Sender,
        table: ObjectTable,
        known: Callable[[], Iterable[int]],
        later: Callable[[float, Callable[[], None]], None],
        spans_hosts: bool = False,
    ) -> None:
        """`known`: the processes to which there is a way. `later`: call in so many
        seconds. `spans_hosts`: connections may break."""
        self._me = links.process_id
        self._links = links
        self._sender = sender
        self._table = table
        table.audit = self
        self._known = known
        self._later = later
        self._spans_hosts = spans_hosts
        self._arrived = Living["Hold"]()

    # -- as the holder -----------------------------------------------------

    def note(self, hold: Hold) -> None:
        """It has arrived. Only a third process can die between its two notes; a
        connection can break with any."""
        lender = hold.lender
        between_two = lender in (hold.owner, self._me)
        if self._spans_hosts or not between_two:
            self._arrived.add(hold)
        if lender is not None and not between_two:
            self._links.watch(lender)
            if self._links.is_gone(lender):
                self._claim([hold])

    def lender_lost(self, dead: int) -> None:
        """A process is dead, and earlier ones of the same actor."""
        holds = self._arrived.all()
        self._claim([h for h in holds if h.lender and died_with(h.lender, dead)])

    def _claim(self, holds: list[Hold]) -> None:
        """Tell the owners that they are here. They live until that is queued."""
        for hold in holds:
            number, holder = hold.object_id, self._me
            if hold.owner == self._me:
                self._table.enter(number, hold.number, holder, holder)
            else:
                payload = bodies.pack_numbers(holder, hold.number)
                kind = envelope.BORROW
                self._sender.post(hold.owner, kind, number, payload, gather=True)

    def on_audit(self, record: envelope.Record) -> None:
        """An owner asks. In the poller's thread."""
        found = bodies.all_numbers(record.payload)
        asked = list(zip(found[::2], found[1::2], strict=False))
        self._later(INBOX_S, partial(self._give_back, record.sender, asked))

    def _give_back(self, owner: int, asked: list[tuple[int, int]]) -> None:
        """Those that are not here."""
        holds = [hold for hold in self._arrived.all() if hold.owner == owner]
        here = {(hold.object_id, hold.number) for hold in holds}
        for object_id, number in asked:
            if (object_id, number) in here:
                continue
            if owner == self._me:
                self._table.release(object_id, number)
            else:
                payload = bodies.pack_numbers(number)
                kind = envelope.RELEASE
                self._sender.post(owner, kind, object_id, payload, gather=True)

    # -- as the owner ------------------------------------------------------

    def ask(self, entered: Iterable[Entered]) -> None:
        """Find out which holds of a dead lender have arrived."""
        # The holder has heard of the death by then, too, and has read its inbox.
        self._later(2 * INBOX_S, partial(self._ask, list(entered)))

    def _ask(self, entered: list[Entered]) -> None:
        asked: dict[int, list[int]] = {}
        for object_id, number, holder in entered:
            if self._table.has_entered(object_id, number):
                asked.setdefault(holder, []).extend((object_id, number))
        for holder, numbers in asked.items():
            if holder == self._me:
                pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
                self._give_back(holder, pairs)
            else:
                payload = bodies.pack_numbers(*numbers)
                self._sender.post(holder, envelope.AUDIT, 0, payload)

    # -- breaks ------------------------------------------------------------

    def connection_broke(self, process_id: int) -> None:
        """Records between this process and that one may be lost. In the housekeeper's
        thread."""
        self._tell_all(process_id)
        self._later(ARRIVED_S, partial(self._tell_all, process_id))

    def _tell_all(self, process_id: int) -> None:
        for other in self._known():
            if other != self._me:
                self._sender.post(other, envelope.UNSURE, process_id)
        # Its news of other breaks may be lost, too: so with any of them.
        self._doubt(lambda one, other: process_id in (one, other))

    def on_unsure(self, record: envelope.Record) -> None:
        """A connection between two others broke. In the poller's thread."""
        ends = {record.sender, record.call_id}
        self._doubt(lambda one, other: {one, other} == ends)

    def _doubt(self, concerns: Callable[[int, int | None], bool]) -> None:
        """`concerns`: whether a hold is concerned, by its owner or its holder, and its
        lender."""
        holds = self._arrived.all()
        self._claim([hold for hold in holds if concerns(hold.owner, hold.lender)])
        entered = self._table.entered(concerns)
        if entered:
            self._later(ARRIVED_S, partial(self._ask, entered))
