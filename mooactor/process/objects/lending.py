# SPDX-License-Identifier: MIT
"""The lending side of loans: the Refs that one pickle has in it.

Nothing is lent while something is pickled: that may fail, and its receiver may not be
known yet. A pickler of ours notes the Refs that it meets with the `lending` that its
thread is within. The sender of the pickle then *issues* the loan to the receiver, as
the last step before the record is sent. A loan that is never issued costs nothing.

See `objects` for what a loan means to the owner.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from mooactor.control import envelope
from mooactor.tensors import receiver

if TYPE_CHECKING:
    from mooactor.process.objects.future import Future
    from mooactor.process.objects.holds import Hold
    from mooactor.process.objects.loans import Loans


class _Pickling(threading.local):
    loan: lending | None = None


_here = _Pickling()


class lending:
    """Within it, what this thread pickles is for `borrower`, None if it is not known.
    Not `alone`: what is pickled may be sent to others as well.

    Afterwards it is the loan of the Refs that were met, which it keeps.
    """

    __slots__ = ("_loans", "_borrower", "_alone", "_before", "_met")

    def __init__(
        self, loans: Loans, borrower: int | None = None, *, alone: bool = True
    ) -> None:
        self._loans = loans
        self._borrower = borrower
        self._alone = alone
        self._met: list[tuple[Hold, Future | None]] | None = None

    def __enter__(self) -> lending:
        self._before, _here.loan = _here.loan, self
        return self

    def __exit__(self, *exc: object) -> None:
        _here.loan = self._before
        self._before = None

    def __bool__(self) -> bool:
        """Whether there are any Refs."""
        return bool(self._met)

    def add(self, hold: Hold, future: Future | None = None) -> None:
        """Note a Ref. `future`: itself, if it is the result of a call from here."""
        if self._met is None:
            self._met = []
        self._met.append((hold, future))

    def issue(self, borrower: int, payload: bytes, flags: int) -> tuple[bytes, int]:
        """Lend to `borrower`; the payload, its loans in front, and its flags."""
        if self._met is None:
            return payload, flags
        loans = envelope.pack_loans(self._loans.process_id, self.lend_to(borrower))
        return loans + payload, flags | envelope.LOANS

    def lend_to(self, borrower: int) -> list[tuple[int, int]]:
        """Lend to `borrower`; returns (owner, number) of each Ref."""
        met = self._met or ()
        for hold, future in met:
            self._loans.lend(hold, borrower, future)
        return [(hold.owner, hold.object_id) for hold, _ in met]

    def recall(self, borrower: int) -> None:
        """The reverse of `lend_to`, for a borrower that never gives back itself."""
        for hold, _ in self._met or ():
            self._loans.give_back(hold, borrower, self._loans.process_id)


def loan_in_progress() -> lending | None:
    """What this thread notes Refs with, if it is pickling something to be sent."""
    return _here.loan


def _sole_receiver() -> int | None:
    loan = _here.loan
    return None if loan is None or not loan._alone else loan._borrower


receiver.learn(_sole_receiver)
