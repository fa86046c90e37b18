# SPDX-License-Identifier: MIT
"""Borrows after a connection broke: counted once more, while all concerned live.

A record that was lost with its connection may have been a BORROW, a RELEASE, or a
message with Refs in it. Invariant of `table`, for each value, holder and lender: the
owner's count is the number of borrows of that lender that the holder has, plus those
on their way to it, plus the RELEASE records on their way to the owner, less the BORROW
records on their way there. A loss breaks it for the keys whose holder or lender was at
one end of the connection, and for no others.

After a break between A and B:

1. Both tell all processes that they know, and each other (UNSURE), at once and again
   after `SETTLED_S` and `ARRIVED_S`. A holder tells an owner at one end
   which values it has of the lender at the other: the owner may not know of them.
2. An owner notes its keys in doubt: those of A or B if it is the other of the two, else
   those of both. A key that changes meanwhile is put off for another round.
3. After `SETTLED_S`, longer than a lender takes between its count and its message, the
   owner sends COUNT by way of the lender to the holder: so it comes behind all that the
   lender has sent. The lender sends it back to the owner, too, behind its BORROWs.
4. The holder returns its own number (COUNTED), behind all that it has given back. Once
   the owner has both and the key has not changed since step 2, nothing of it is on its
   way, and the number replaces the count.
5. A RELEASE may come later than that, of a borrow whose BORROW was lost: a count that
   gets negative is in doubt as well, if its lender was at the other end of a break.

Rounds that another break interrupts are begun again with that break. A value whose only
BORROW was lost may be freed before step 4; its holder then gets `ActorUnavailable`.
Holds of actors in all incarnations (see `table`) are no process's, and not recounted.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable
from functools import partial

from mooactor.control import bodies, envelope
from mooactor.control.links import Links
from mooactor.control.sender import Sender
from mooactor.process.objects.audit import INBOX_S, Audit
from mooactor.process.objects.doubts import Key
from mooactor.process.objects.table import ObjectTable

SETTLED_S = 1.0
ARRIVED_S = 6.0  # no record takes so long over a connection that lives
FORGOTTEN_S = 60.0  # a round without an answer
_MOST_ROUNDS = 100


class Recounts:
    """One per process, in its parts as owner, lender and holder."""

    def __init__(
        self,
        links: Links,
        sender: Sender,
        table: ObjectTable,
        audit: Audit,
        known: Callable[[], Iterable[int]],
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        """`known`: the processes to which there is a way. `later`: call in so many
        seconds."""
        self._me = links.process_id
        self._sender = sender
        self._table = table
        self._audit = audit
        self._known = known
        self._later = later
        self._rounds = itertools.count(1)
        self._lock = threading.Lock()
        # What has come of rounds, by (round, holder, lender): counts, or that all of
        # the lender's has come.
        self._counted: dict[tuple[int, int, int], dict[int, int]] = {}
        self._passed: set[tuple[int, int, int]] = set()
        table.when_negative = lambda key: self._begin([key])

    def connection_broke(self, process_id: int) -> None:
        """Records between this process and that one may be lost. In the housekeeper's
        thread."""
        self._table.broken.add(process_id)
        self._tell_all(process_id)
        # Again, behind messages that were sent after their BORROW was lost; and again,
        # when all BORROWs have come whose RELEASE was lost.
        for delay_s in (SETTLED_S, ARRIVED_S):
            self._later(delay_s, partial(self._tell_all, process_id))

    def _tell_all(self, process_id: int) -> None:
        for other in self._known():
            if other != self._me:
                self._sender.post(other, envelope.UNSURE, process_id)
        # What it has told us of other breaks may be lost, too: so with any of them.
        self._doubt_holds(lambda owner, lender: process_id in (owner, lender))
        self._begin(self._table.keys_of(process_id))

    def on_record(self, record: envelope.Record) -> None:
        """In the poller's thread."""
        found = bodies.all_numbers(record.payload)
        if record.kind == envelope.UNSURE:
            self._on_unsure(record.sender, record.call_id, found)
        elif record.kind == envelope.COUNT:
            self._on_count(record.call_id, found)
        elif not found:
            raise envelope.MalformedMessage("a COUNTED is cut short")
        else:
            lender, *flat = found
            counts = dict(zip(flat[::2], flat[1::2], strict=False))
            self._has_counted((record.call_id, record.sender, lender), counts)

    def _on_unsure(self, sender: int, process_id: int, objects: list[int]) -> None:
        if objects:  # a holder's, who has these of that lender
            self._begin([(number, sender, process_id) for number in objects])
            return
        self._begin(self._table.keys_of(sender, process_id))
        self._doubt_holds(lambda *both: both == (process_id, sender))

    def _doubt_holds(self, between: Callable[[int, int], bool]) -> None:
        """Tell the owners what is here, of such owners and lenders: they may not know
        of it."""
        found: dict[tuple[int, int], list[int]] = {}
        for owner, lender, number in self._audit.all_arrived():
            if between(owner, lender):
                found.setdefault((owner, lender), []).append(number)
        for (owner, lender), objects in found.items():
            if owner == self._me:
                self._begin([(number, owner, lender) for number in objects])
            else:
                payload = bodies.pack_numbers(*objects)
                self._sender.post(owner, envelope.UNSURE, lender, payload)

    # -- as owner ------------------------------------------------------------

    def _begin(self, keys: Iterable[Key], left: int = _MOST_ROUNDS) -> None:
        keys = list(keys)
        if not keys:
            return
        number = next(self._rounds)
        self._table.doubt(keys, number)
        self._later(SETTLED_S, partial(self._ask, number, left))
        self._later(FORGOTTEN_S, partial(self._forget, number))

    def _ask(self, number: int, left: int) -> None:
        """Ask for those that have not changed; the others once more, later."""
        same, changed = self._table.doubts.take_changed(number)
        asked: dict[tuple[int, int], list[int]] = {}
        for object_id, holder, lender in same:
            asked.setdefault((holder, lender), []).append(object_id)
        for (holder, lender), objects in asked.items():
            by_way_of = lender if lender != self._me else holder
            body = bodies.pack_numbers(self._me, holder, lender, *objects)
            self._sender.post(by_way_of, envelope.COUNT, number, body)
        if changed and left:
            self._begin(changed, left - 1)

    def _has_counted(self, its: tuple[int, int, int], counts: dict[int, int]) -> None:
        _, holder, lender = its
        with self._lock:
            if lender not in (self._me, holder) and its not in self._passed:
                self._counted[its] = counts
                return
        self._settle(its, counts)

    def _has_passed(self, its: tuple[int, int, int]) -> None:
        with self._lock:
            self._passed.add(its)
            counts = self._counted.pop(its, None)
        if counts is not None:
            self._settle(its, counts)

    def _settle(self, its: tuple[int, int, int], counts: dict[int, int]) -> None:
        number, *whose = its
        keys = [(object_id, whose[0], whose[1]) for object_id in counts]
        self._begin(self._table.settle(number, keys, counts))

    def _forget(self, number: int) -> None:
        self._table.doubts.drop(number)
        with self._lock:
            self._passed = {its for its in self._passed if its[0] != number}
            for its in [its for its in self._counted if its[0] == number]:
                del self._counted[its]

    # -- as lender and as holder ---------------------------------------------

    def _on_count(self, number: int, found: list[int]) -> None:
        if len(found) < 3:
            raise envelope.MalformedMessage("a COUNT is cut short")
        owner, holder, lender, *objects = found
        if not objects:
            self._has_passed((number, holder, lender))
            return
        if lender == self._me:
            passed = bodies.pack_numbers(owner, holder, lender)
            self._sender.post(owner, envelope.COUNT, number, passed)
        if holder == self._me:
            tell = partial(self._tell, number, owner, lender, objects)
            self._later(INBOX_S, tell)
        elif lender == self._me:
            payload = bodies.pack_numbers(*found)
            self._sender.post(holder, envelope.COUNT, number, payload)

    def _tell(self, number: int, owner: int, lender: int, objects: list[int]) -> None:
        counts, kept = self._audit.count(owner, lender, objects)
        if owner == self._me:
            self._has_counted((number, self._me, lender), dict(counts))
        else:
            flat = [x for pair in counts for x in pair]
            payload = bodies.pack_numbers(lender, *flat)
            self._sender.post(owner, envelope.COUNTED, number, payload)
        del kept
