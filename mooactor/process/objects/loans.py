# SPDX-License-Identifier: MIT
"""Loans as their lender and their borrower see them, wherever the owner is.

`table` has the protocol, and what a loan means to the owner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mooactor.control import envelope
from mooactor.control.sender import Sender

if TYPE_CHECKING:
    from mooactor.process.objects.audit import Audit
    from mooactor.process.objects.future import Future
    from mooactor.process.objects.holds import Hold
    from mooactor.process.objects.table import ObjectTable


class Loans:
    """Tells the owner of a value who holds it: a table here, or another process."""

    def __init__(
        self,
        process_id: int,
        table: ObjectTable,
        audit: Audit,
        sender: Sender,
        arm: Callable[[], None],
    ) -> None:
        """`arm`: have somebody call `ObjectTable.sweep` soon."""
        self.process_id = process_id
        self._table = table
        self._audit = audit
        self._sender = sender
        self._arm = arm

    @property
    def ended(self) -> bool:
        """Whether the session is over: then nothing is given back."""
        return self._sender.ended

    def lend(self, hold: Hold, borrower: int, future: Future | None = None) -> None:
        """Note with the owner that `borrower` is about to hold a value, too. `future`
        has the value if it is a result of this process."""
        if hold.owner == self.process_id:
            self._table.lend(hold.object_id, borrower, future)
            self._arm()
        else:
            payload = envelope.pack_numbers(borrower)
            self._sender.post(hold.owner, envelope.BORROW, hold.object_id, payload)

    def arrived(self, hold: Hold) -> None:
        """A loan to this process has arrived."""
        self._audit.note(hold)

    def give_back(self, hold: Hold, holder: int, lender: int) -> None:
        """Note with the owner that a loan to `holder` has ended."""
        if hold.owner == self.process_id:
            self._table.given_back(hold.object_id, holder, lender)
        else:
            payload = envelope.pack_pair(holder, lender)
            self._sender.post(hold.owner, envelope.RELEASE, hold.object_id, payload)

    def give_back_later(self, hold: Hold, lender: int) -> None:
        """As `give_back`, of a loan to this process. For finalizers: takes no lock."""
        if hold.owner == self.process_id:
            self._table.drop_local(hold.object_id, lender)
            self._arm()
        else:
            payload = envelope.pack_pair(self.process_id, lender)
            self._sender.post_later(
                hold.owner, envelope.RELEASE, hold.object_id, payload
            )
