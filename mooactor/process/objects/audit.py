# SPDX-License-Identifier: MIT
"""Borrows whose lender died: a count of those that have arrived.

A lender tells the owner of a borrow, and the receiver by its message; killed in
between, it may have told one of them only (see `table`). So after a lender's death,
when its messages have been read, each receiver tells the owners how many of its borrows
it holds (HOLDS), and each owner asks those that it counts borrows of that lender for
(AUDIT). The number replaces the owner's count.

RELEASE records that a receiver sent before its number arrive before it; those that it
sends later are counted from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from mooactor.control import bodies, envelope
from mooactor.control.keys import died_with
from mooactor.control.links import Links
from mooactor.control.sender import Sender
from mooactor.process.objects.living import Living

if TYPE_CHECKING:
    from mooactor.process.objects.holds import Hold
    from mooactor.process.objects.table import ObjectTable

#: The time that a dead process's messages may lie in an inbox unread.
INBOX_S = 0.1


class Audit:
    """One per process, in its parts as receiver and as owner."""

    def __init__(
        self,
        links: Links,
        sender: Sender,
        table: ObjectTable,
        later: Callable[[float, Callable[[], None]], None],
        spans_hosts: bool = False,
    ) -> None:
        """`later`: call in so many seconds. `spans_hosts`: connections may break."""
        self._me = links.process_id
        self._links = links
        self._sender = sender
        self._table = table
        table.audit = self
        self._later = later
        self._spans_hosts = spans_hosts
        self._arrived = Living["Hold"]()

    def note(self, hold: Hold) -> None:
        """A borrow has arrived. Only a third process can die between its two notes; a
        connection can break with any."""
        if hold.lender is None:
            return
        between_two = hold.lender in (hold.owner, self._me)
        if self._spans_hosts or not between_two:
            self._arrived.add(hold)
        if between_two:
            return
        self._links.watch(hold.lender)
        if self._links.is_gone(hold.lender):
            self.lender_lost(hold.lender)

    def lender_lost(self, dead: int) -> None:
        """Tell the owners which borrows of it, and of its earlier incarnations, have
        arrived."""
        holds = self._arrived.all()
        for lender in {hold.lender for hold in holds if hold.lender is not None}:
            if died_with(lender, dead):
                self._later(INBOX_S, partial(self._tell_owners, lender))

    def _tell_owners(self, lender: int) -> None:
        numbers: dict[int, set[int]] = {}
        for owner, number in self.arrived(lender):
            numbers.setdefault(owner, set()).add(number)
        for owner in numbers:
            self._tell(owner, lender, numbers[owner])

    def arrived(self, lender: int) -> Counter[tuple[int, int]]:
        """The number of borrows of that lender that are here, by (owner, number)."""
        holds = [hold for hold in self._arrived.all() if hold.lender == lender]
        return Counter((hold.owner, hold.object_id) for hold in holds)

    def all_arrived(self) -> set[tuple[int, int, int]]:
        """Owner, lender and number of each value of which a borrow is here."""
        holds = self._arrived.all()
        return {(h.owner, h.lender, h.object_id) for h in holds if h.lender is not None}

    def count(
        self, owner: int, lender: int, numbers: Iterable[int]
    ) -> tuple[list[tuple[int, int]], list[Hold]]:
        """(object id, count) of each, when all that was given back before is posted;
        and the holds. They are to be kept until the counts are posted, so that none is
        given back between the two."""
        holds = [hold for hold in self._arrived.all() if hold.lender == lender]
        self._sender.post_all_that_is_due()
        self._table.sweep()
        found = Counter(hold.object_id for hold in holds if hold.owner == owner)
        return [(number, found[number]) for number in numbers], holds

    def _tell(self, owner: int, lender: int, numbers: Iterable[int]) -> None:
        counts, kept = self.count(owner, lender, numbers)
        if owner == self._me:
            self._table.recount(owner, lender, counts)
        else:
            flat = [x for pair in counts for x in pair]
            payload = bodies.pack_numbers(*flat)
            self._sender.post(owner, envelope.HOLDS, lender, payload)
        del kept

    # -- as owner ----------------------------------------------------------

    def ask(self, holder: int, lender: int, numbers: list[int]) -> None:
        """Find out which borrows of a dead lender have arrived."""
        # The holder has heard of the death by then, too, and has read its inbox.
        self._later(2 * INBOX_S, partial(self._ask, holder, lender, numbers))

    def _ask(self, holder: int, lender: int, numbers: list[int]) -> None:
        if holder == self._me:
            self._tell(holder, lender, numbers)
        else:
            payload = bodies.pack_numbers(*numbers)
            self._sender.post(holder, envelope.AUDIT, lender, payload)

    def on_record(self, record: envelope.Record) -> None:
        """In the poller's thread."""
        sender, lender = record.sender, record.call_id
        numbers = bodies.all_numbers(record.payload)
        if record.kind == envelope.AUDIT:
            self._later(INBOX_S, partial(self._tell, sender, lender, numbers))
        else:
            counts = list(zip(numbers[::2], numbers[1::2], strict=False))
            self._table.recount(sender, lender, counts)
