# SPDX-License-Identifier: MIT
"""Loans whose lender died: how many of them have arrived.

A lender tells the owner of a loan, and the receiver by its message; killed in between,
it may have told one of them only (see `objects`). So after a lender's death, when what
it sent has been read, each receiver tells the owners how many of its loans it holds
(HOLDS), and each owner asks those that it counts loans of that lender for (AUDIT). The
number replaces the owner's count.

RELEASE records that a receiver sent before its number arrive before it; those that it
sends later are counted from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakSet

from mooactor.control import envelope
from mooactor.control.keys import died_with

if TYPE_CHECKING:
    from mooactor.process.objects.holds import Hold
    from mooactor.process.runtime import Runtime

#: How long what a dead process sent may lie in an inbox unread.
INBOX_S = 0.1


class Audit:
    """One per process: it receives, and it owns."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lent_by_others: WeakSet[Hold] = WeakSet()

    def note(self, hold: Hold) -> None:
        """A loan has arrived. Only a third process can die between its two notes."""
        if hold.lender is None or hold.lender in (hold.owner, self._runtime.process_id):
            return
        self._lent_by_others.add(hold)
        self._runtime.watch(hold.lender)
        if self._runtime.is_gone(hold.lender):
            self.lender_lost(hold.lender)

    def lender_lost(self, dead: int) -> None:
        """Tell the owners what has arrived of it, and of its incarnations before."""
        holds = list(self._lent_by_others)
        for lender in {hold.lender for hold in holds if hold.lender is not None}:
            if died_with(lender, dead):
                self._runtime.later(INBOX_S, partial(self._tell_owners, lender))

    def _tell_owners(self, lender: int) -> None:
        numbers: dict[int, set[int]] = {}
        for owner, number in self._arrived_from(lender):
            numbers.setdefault(owner, set()).add(number)
        for owner in numbers:
            self._tell(owner, lender, numbers[owner])

    def _arrived_from(self, lender: int) -> Counter[tuple[int, int]]:
        holds = [hold for hold in list(self._lent_by_others) if hold.lender == lender]
        return Counter((hold.owner, hold.object_id) for hold in holds)

    def _tell(self, owner: int, lender: int, numbers: Iterable[int]) -> None:
        runtime = self._runtime
        runtime.post_what_is_due()  # what was given back before
        runtime.objects.sweep()
        arrived = self._arrived_from(lender)
        counts = [(number, arrived[owner, number]) for number in numbers]
        if owner == runtime.process_id:
            runtime.objects.recount(owner, lender, counts)
        else:
            flat = [x for pair in counts for x in pair]
            payload = envelope.pack_numbers(*flat)
            runtime.post(owner, envelope.HOLDS, lender, payload)

    # -- as owner ----------------------------------------------------------

    def ask(self, holder: int, lender: int, numbers: list[int]) -> None:
        """Find out what has arrived of the loans of a dead lender."""
        # It has been told of the death by then, too, and has read what there was.
        self._runtime.later(2 * INBOX_S, partial(self._ask, holder, lender, numbers))

    def _ask(self, holder: int, lender: int, numbers: list[int]) -> None:
        if holder == self._runtime.process_id:
            self._tell(holder, lender, numbers)
        else:
            payload = envelope.pack_numbers(*numbers)
            self._runtime.post(holder, envelope.AUDIT, lender, payload)

    def on_record(self, sender: int, record: envelope.Record) -> None:
        """In the pump's thread."""
        lender = record.call_id
        numbers = envelope.all_numbers(record.payload)
        if record.kind == envelope.AUDIT:
            self._runtime.later(INBOX_S, partial(self._tell, sender, lender, numbers))
        else:
            counts = list(zip(numbers[::2], numbers[1::2], strict=False))
            self._runtime.objects.recount(sender, lender, counts)
