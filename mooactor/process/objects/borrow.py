# SPDX-License-Identifier: MIT
"""Borrows: values that one process holds of another, and the Refs in one pickle.

A process that gets a Ref *borrows* its value from the owner; the process that sends the
Ref is the *lender*. `table` has the protocol, and the owner's side. `Borrows` tells the
owner, wherever it is.

Nothing is lent while something is pickled: that may fail, and its receiver may not be
known yet. A pickler of ours notes the Refs that it meets with the `Borrowing` of its
thread. The sender of the pickle then *issues* the borrows to the receiver, as
the last step before the record is sent. Borrows that are never issued cost nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from mooactor.control import bodies, envelope, script
from mooactor.control.sender import Sender
from mooactor.process.objects.holds import Unsent, claiming
from mooactor.tensors import codec

if TYPE_CHECKING:
    from mooactor.process.objects.audit import Audit
    from mooactor.process.objects.future import Future
    from mooactor.process.objects.holds import Hold
    from mooactor.process.objects.table import ObjectTable

T = TypeVar("T")


class Borrows:
    """Tells the owner of a value, a table here or another process, of its holders."""

    def __init__(
        self,
        process_id: int,
        table: ObjectTable,
        audit: Audit,
        sender: Sender,
        arm: Callable[[], None],
    ) -> None:
        """`arm`: have `ObjectTable.sweep` called soon."""
        self.process_id = process_id
        self._table = table
        self._audit = audit
        self._sender = sender
        self._arm = arm

    @property
    def ended(self) -> bool:
        """Whether the session is over: then nothing is given back."""
        return self._sender.ended

    def lend(
        self,
        hold: Hold,
        borrower: int,
        future: Future | None = None,
        once: list[int] | None = None,
    ) -> None:
        """Tell the owner that `borrower` is about to hold a value, too. `future` has
        the value if it is a result of this process. `once` is emptied in the step that
        lends it."""
        if hold.owner == self.process_id:
            self._table.lend(hold.object_id, borrower, future, once)
            self._arm()
        else:
            number, payload = hold.object_id, bodies.pack_numbers(borrower)
            if once is None:
                self._sender.post(hold.owner, envelope.BORROW, number, payload)
            else:
                self._sender.post_once(
                    hold.owner, envelope.BORROW, number, payload, 0, once
                )

    def take_back(self, hold: Hold, borrower: int, once: list[int]) -> None:
        """The reverse of `lend`, if it came to that. The borrower did not learn of
        it."""
        if not once:
            self.give_back(hold, borrower, self.process_id)

    def arrived(self, hold: Hold) -> None:
        """A borrow of this process has arrived."""
        self._audit.note(hold)

    def give_back(self, hold: Hold, holder: int, lender: int) -> None:
        """Tell the owner that a borrow of `holder` has ended."""
        if hold.owner == self.process_id:
            self._table.given_back(hold.object_id, holder, lender)
        else:
            payload = bodies.pack_pair(holder, lender)
            self._sender.post(hold.owner, envelope.RELEASE, hold.object_id, payload)

    def give_back_beside(self, hold: Hold, lender: int) -> None:
        """As `give_back`, of a borrow of this process, with the next record for the
        owner, or soon."""
        payload = bodies.pack_pair(self.process_id, lender)
        self._sender.post_beside(hold.owner, envelope.RELEASE, hold.object_id, payload)

    def give_back_later(self, hold: Hold, lender: int) -> None:
        """As `give_back`, of a borrow of this process. For finalizers: no lock."""
        if hold.owner == self.process_id:
            self._table.drop_local(hold.object_id, lender)
            self._arm()
        else:
            payload = bodies.pack_pair(self.process_id, lender)
            self._sender.post_later(
                hold.owner, envelope.RELEASE, hold.object_id, payload
            )


class _Pickling(threading.local):
    borrowing: Borrowing | None = None


_here = _Pickling()


class Borrowing:
    """The Refs in a pickle for `borrowers`, none if they are not known, whose values it
    keeps. Not `alone`: the pickle may be sent to others as well.
    """

    __slots__ = (
        "_borrows",
        "_borrowers",
        "_alone",
        "_met",
        "keys",
        "laid_out",
        "defines",
    )

    def __init__(self, borrows: Borrows, *borrowers: int, alone: bool = True) -> None:
        self._borrows = borrows
        self._borrowers = borrowers
        self._alone = alone
        self._met: list[tuple[Hold, Future | None]] | None = None
        self.keys: set[str] = set()  # of the script's definitions that went along
        # Whether it is of use to these borrowers alone: see `tensors.codec`, `script`.
        self.laid_out = self.defines = False

    def note(self, encode: Callable[..., T], *args: Any) -> T:
        """`encode(*args)`, which pickles; the Refs that it meets are added."""
        # No context manager: a signal handler that raises where `__exit__` begins would
        # leave this to later pickles. Here it runs after calls only.
        before, _here.borrowing = _here.borrowing, self
        pickle_for = script.pickle_for
        target = pickle_for.replace(self._borrowers if self._alone else (), self.keys)
        met, pickle_for.met = pickle_for.met, False
        try:
            return encode(*args)
        finally:
            _here.borrowing = before
            pickle_for.replace(*target)
            self.defines |= pickle_for.met and self._alone
            pickle_for.met |= met

    def __bool__(self) -> bool:
        """Whether there are any Refs."""
        return bool(self._met)

    def add(self, hold: Hold, future: Future | None = None) -> None:
        """Note a Ref. `future`: itself, if it is the result of a call from here."""
        if self._met is None:
            self._met = []
        self._met.append((hold, future))

    def of(self, hold: Hold, others: Borrowing | None) -> Borrowing:
        """Those of `others`, behind `hold`; returns this."""
        met = None if others is None else others._met
        self._met = [(hold, None), *(met or ())]
        return self

    def issue(
        self, borrower: int, payload: bytes, flags: int, unsent: Unsent | None = None
    ) -> tuple[bytes, int]:
        """Lend to `borrower`; the payload, its borrows in front, and its flags."""
        if self._met is None:
            return payload, flags
        lent = self.lend_to(borrower, unsent)
        borrows = bodies.pack_borrows(self._borrows.process_id, lent)
        return borrows + payload, flags | envelope.BORROWS

    def lend_to(
        self, borrower: int, unsent: Unsent | None = None
    ) -> list[tuple[int, int]]:
        """Lend to `borrower`; returns (owner, number) of each Ref."""
        borrows, met = self._borrows, self._met or ()
        for hold, future in met:
            once = None
            if unsent is not None:
                once = [1]
                unsent.append((borrows.take_back, hold, borrower, once))
            borrows.lend(hold, borrower, future, once)
        return [(hold.owner, hold.object_id) for hold, _ in met]

    def decode(self, decode: Callable[[], T]) -> T:
        """Decode the pickle here, where its Refs are the very ones that were met."""
        refs: dict[tuple[int, int], list[Future | None]] = {}
        for hold, future in self._met or ():
            refs.setdefault((hold.owner, hold.object_id), []).append(future)
        return claiming({key: iter(found) for key, found in refs.items()}, decode)

    def recall(self, borrower: int) -> None:
        """The reverse of `lend_to`, for a borrower that never gives back itself."""
        for hold, _ in self._met or ():
            self._borrows.give_back(hold, borrower, self._borrows.process_id)


def borrowing_in_progress() -> Borrowing | None:
    """The `Borrowing` that this thread notes Refs with, if it is pickling something to
    be sent."""
    return _here.borrowing


def _sole_receiver() -> int | None:
    borrowing = _here.borrowing
    if borrowing is None or not borrowing._alone or len(borrowing._borrowers) != 1:
        return None
    borrowing.laid_out = True
    return borrowing._borrowers[0]


codec.ask_for_receiver(_sole_receiver)
