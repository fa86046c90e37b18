# SPDX-License-Identifier: MIT
"""The receiving side of borrows: this process's holds of values, its own included.

`table` has the protocol. A payload with Refs in it names their borrows beside the
pickle; `Claims` are those borrows, as *holds*. Each Ref that is decoded claims the hold
of its own, and keeps it for as long as it lives. Holds that nobody claimed, because the
payload was dropped undecoded or decoding failed half-way, are given back with the
claims. So every borrow that arrives is given back, even if its payload is dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mooactor.process.objects.borrow import Borrows


class Hold:
    """A value, by its owner and its number there; held until this is collected.

    `lender`: the process that lent it. None if it is not counted: for the Ref to a
    result of this process, which has the value itself, and for a Ref that was pickled
    by hand.
    """

    __slots__ = ("_borrows", "owner", "object_id", "lender", "__weakref__")

    def __init__(
        self, borrows: Borrows, owner: int, object_id: int, lender: int | None
    ) -> None:
        self._borrows = borrows
        self.owner = owner
        self.object_id = object_id
        self.lender = lender

    def __del__(self) -> None:
        if self.lender is not None and not self._borrows.ended:
            self._borrows.give_back_later(self, self.lender)


class _Decoding(threading.local):
    claims: Claims | None = None


_here = _Decoding()


class Claims:
    """The borrows of one payload. Within it, this thread decodes that payload."""

    __slots__ = ("_holds", "_before")

    def __init__(
        self, borrows: Borrows, lender: int, lent: Iterable[tuple[int, int]]
    ) -> None:
        """`lent`: (owner, number) of each."""
        self._holds: dict[tuple[int, int], list[Hold]] = {}
        for owner, number in lent:
            hold = Hold(borrows, owner, number, lender)
            borrows.arrived(hold)
            self._holds.setdefault((owner, number), []).append(hold)

    def __enter__(self) -> Claims:
        self._before, _here.claims = _here.claims, self
        return self

    def __exit__(self, *exc: object) -> None:
        _here.claims = self._before
        self._before = None
        # An exception would keep them in its frames.
        self._holds.clear()

    def disarm(self) -> None:
        """Give nothing back: other claims have the same borrows."""
        for holds in self._holds.values():
            for hold in holds:
                hold.lender = None

    def borrows(self) -> list[tuple[int, int]]:
        """(owner, number) of each that was not claimed yet."""
        return [key for key, holds in self._holds.items() for _ in holds]

    def claim(self, owner: int, object_id: int) -> Hold | None:
        """Take one hold of a value, or None if all are claimed."""
        holds = self._holds.get((owner, object_id))
        return holds.pop() if holds else None


def claimed(owner: int, object_id: int) -> Hold | None:
    """The hold for a Ref that this thread is decoding, if it was lent with it."""
    claims = _here.claims
    return None if claims is None else claims.claim(owner, object_id)
