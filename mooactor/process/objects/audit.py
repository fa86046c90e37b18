# SPDX-License-Identifier: MIT
"""Borrows that are counted afterwards.

**Their lender died** (`Audit`). A lender tells the owner of a borrow, and the receiver
by its message; killed in between, it may have told one of them only (see `table`). So
after a lender's death, when its messages have been read, each receiver tells the owners
how many of its borrows it holds (HOLDS), and each owner asks those that it counts
borrows of that lender for (AUDIT). The number replaces the owner's count.

RELEASE records that a receiver sent before its number arrive before it; those that it
sends later are counted from it.

**A connection broke** (`Recounts`), while all concerned live. A record that was lost
with its connection may have been a BORROW, a RELEASE, or a message with Refs in it.
Invariant of `table`, for each value, holder and lender: the owner's count is the number
of borrows of that lender that the holder has, plus those on their way to it, plus the
RELEASE records on their way to the owner, less the BORROW records on their way there. A
loss breaks it for the keys whose holder or lender was at one end of the connection, and
for no others.

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
from collections import Counter
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


Key = tuple[int, int, int]  # object id, holder, lender


class Doubts:
    """Counts of one table that are in doubt: they are being recounted, and this notes
    whether they change meanwhile. The table's lock is held around each method but
    `take_changed` and `drop`, which take it themselves."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._rounds: dict[Key, int] = {}
        self._changed: set[Key] = set()

    def __bool__(self) -> bool:
        return bool(self._rounds)

    def add(self, keys: Iterable[Key], number: int) -> None:
        """These are counted in round `number`, instead of an earlier one."""
        for key in keys:
            self._rounds[key] = number
            self._changed.discard(key)

    def note(self, key: Key) -> None:
        """A count has changed."""
        if key in self._rounds:
            self._changed.add(key)

    def settle(self, key: Key, number: int) -> bool | None:
        """It was counted in round `number`: whether the number holds, because nothing
        has changed. None: it is not of that round any more."""
        if self._rounds.get(key) != number:
            return None
        del self._rounds[key]
        changed = key in self._changed
        self._changed.discard(key)
        return not changed

    def take_changed(self, number: int) -> tuple[list[Key], list[Key]]:
        """The keys of a round that are as they were; and the others, which leave it."""
        with self._lock:
            keys = [key for key, its in self._rounds.items() if its == number]
            changed = [key for key in keys if key in self._changed]
            for key in changed:
                self.settle(key, number)
        return [key for key in keys if key not in set(changed)], changed

    def drop(self, number: int) -> None:
        """Give a round up."""
        with self._lock:
            for key in [key for key, its in self._rounds.items() if its == number]:
                self.settle(key, number)


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
        # News of rounds, by (round, holder, lender): counts, or that all of
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
        # Its news of other breaks may be lost, too: so with any of them.
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
