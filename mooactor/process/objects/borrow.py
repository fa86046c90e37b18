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

import itertools
import secrets
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from mooactor.control import bodies, envelope, script
from mooactor.control.sender import Sender
from mooactor.process.objects.holds import Hold, claiming
from mooactor.tensors import codec

if TYPE_CHECKING:
    from mooactor.process.objects.audit import Audit
    from mooactor.process.objects.future import Future
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
    ) -> None:
        self.process_id = process_id
        self._table = table
        self._audit = audit
        self._sender = sender
        self._numbers = itertools.count(secrets.randbits(63))

    @property
    def ended(self) -> bool:
        """Whether the session is over: then nothing is given back."""
        return self._sender.ended

    def new_number(self) -> int:
        """Of a hold, different from all others of the session."""
        return next(self._numbers)

    def lend(
        self, hold: Hold, borrower: int, number: int, future: Future | None = None
    ) -> None:
        """Tell the owner that `borrower` is about to hold a value, too, as `number`.
        `future` has the value if it is a result of this process."""
        if hold.owner == self.process_id:
            self._table.lend(hold.object_id, borrower, number, future)
            self._sender.arm()
        else:
            payload = bodies.pack_numbers(borrower, number)
            self._sender.post(hold.owner, envelope.BORROW, hold.object_id, payload)

    def lend_here(self, owner: int, object_id: int) -> Hold:
        """A further hold of this process on a value that it has a hold of."""
        hold, number = Hold(self, owner, object_id), self.new_number()
        self.lend(hold, self.process_id, number)
        hold.count(self.process_id, number)
        self.arrived(hold)
        return hold

    def arrived(self, hold: Hold) -> None:
        """A hold of this process has arrived."""
        self._audit.note(hold)

    def give_back(self, owner: int, object_id: int, number: int) -> None:
        """Tell the owner that the hold of that number has ended, or was never given."""
        if owner == self.process_id:
            self._table.release(object_id, number)
        else:
            payload = bodies.pack_numbers(number)
            self._sender.post(owner, envelope.RELEASE, object_id, payload)

    def give_back_beside(self, hold: Hold) -> None:
        """Give back a hold of this process with the next record for the owner, or
        soon."""
        payload = bodies.pack_numbers(hold.number)
        release = envelope.RELEASE
        self._sender.post(hold.owner, release, hold.object_id, payload, gather=True)

    def give_back_later(self, hold: Hold) -> None:
        """Give back a hold of this process. For finalizers: no lock."""
        self._sender.later(
            partial(self.give_back, hold.owner, hold.object_id, hold.number)
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
        self._met: dict[tuple[int, int], tuple[Hold, Future | None]] | None = None
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
            self._met = {}
        self._met[hold.owner, hold.object_id] = hold, future

    def of(self, hold: Hold, others: Borrowing | None) -> Borrowing:
        """Those of `others`, behind `hold`; returns this."""
        self.add(hold)
        if others is not None and others._met and self._met is not None:
            self._met.update(others._met)
        return self

    def issue(self, borrower: int, payload: bytes, flags: int) -> tuple[bytes, int]:
        """Lend to `borrower`; the payload, its borrows in front, and its flags."""
        if self._met is None:
            return payload, flags
        number = self.lend_to(borrower)
        borrows = bodies.pack_borrows(self._borrows.process_id, number, self._met)
        return borrows + payload, flags | envelope.BORROWS

    def lend_to(self, borrower: int) -> int:
        """Lend to `borrower`; returns the number of the holds."""
        borrows, met = self._borrows, self._met or {}
        number = borrows.new_number()
        for hold, future in met.values():
            borrows.lend(hold, borrower, number, future)
        return number

    def decode(self, decode: Callable[[], T]) -> T:
        """Decode the pickle here, where its Refs are the very ones that were met."""
        return claiming({key: met[1] for key, met in (self._met or {}).items()}, decode)

    def recall(self, number: int) -> None:
        """The reverse of `lend_to`, for a borrower that never gives back itself."""
        for owner, object_id in self._met or ():
            self._borrows.give_back(owner, object_id, number)


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
