# SPDX-License-Identifier: MIT
"""Holds: the values of other processes, and of this one, that this process has Refs to.

`table` has the protocol. A payload with Refs in it names their borrows beside the
pickle; `Claims` are those borrows, one *hold* for each value. The Refs that are decoded
claim the holds, and keep them for as long as they live. The claims keep all of them
until they are dropped with the payload, so that decoding can begin anew after a signal
handler has cut it short. So every hold that arrives is given back: with the last Ref to
the value, or with the payload if no Ref has claimed it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from mooactor.process.objects.borrow import Borrows


T = TypeVar("T")


class Hold:
    """A value, by its owner and its number there; held until this is collected.

    `lender` and `number` (of the hold) are set if it is known to the owner; it is not
    for the Ref to a result of this process, which has the value itself, nor for a Ref
    that was pickled by hand.
    """

    __slots__ = (
        "_borrows",
        "owner",
        "object_id",
        "lender",
        "number",
        "__weakref__",
    )

    def __init__(self, borrows: Borrows, owner: int, object_id: int) -> None:
        self.lender: int | None = None  # first: see `__del__`
        self._borrows = borrows
        self.owner = owner
        self.object_id = object_id
        self.number = 0

    def count(self, lender: int, number: int) -> None:
        """It was lent by `lender`, and is given back when it is collected."""
        self.number = number
        self.lender = lender

    def __del__(self) -> None:
        lender = getattr(self, "lender", None)
        if lender is not None and not self._borrows.ended:
            self._borrows.give_back_later(self)


class Claims:
    """The borrows of one payload, from `arrive` on."""

    __slots__ = ("_borrows", "_lender", "_number", "_holds", "home")

    def __init__(
        self,
        borrows: Borrows,
        lender: int,
        number: int,
        lent: Iterable[tuple[int, int]],
        *,
        stays: bool = False,
    ) -> None:
        """`number`: of the holds. `lent`: (owner, number) of each value. `stays`: the
        first is the result itself, its `home`."""
        self._borrows = borrows
        self._lender = lender
        self._number = number
        lent = iter(lent)
        self.home = Hold(borrows, *next(lent)) if stays else None
        self._holds = {key: Hold(borrows, *key) for key in lent}

    def arrive(self) -> Claims:
        """Have them given back when they end. May be repeated, if that was cut short,
        until they are decoded."""
        for hold in (*([self.home] if self.home else []), *self._holds.values()):
            hold.count(self._lender, self._number)
            self._borrows.arrived(hold)
        return self

    def leave_home(self) -> None:
        """Give that hold back with the next record for its owner."""
        home, self.home = self.home, None
        if home is not None and home.lender is not None:
            self._borrows.give_back_beside(home)
            home.lender = None

    def decode(self, decode: Callable[[], T]) -> T:
        """Have this thread decode that payload; the Refs in it claim their holds. May
        be called again, for Refs in place of those."""
        return claiming(self._holds, decode)

    def give_back(self) -> None:
        """Keep none any more: those without a Ref are not needed."""
        self._holds = {}

    def borrows(self) -> list[tuple[int, int]]:
        """(owner, number) of each value."""
        return list(self._holds)


class _Decoding(threading.local):
    unclaimed: Mapping[tuple[int, int], Any] = {}


_here = _Decoding()


def claiming(unclaimed: Mapping[tuple[int, int], Any], decode: Callable[[], T]) -> T:
    """`decode()`, whose Refs find these with `claimed`."""
    # A signal handler runs after calls only: it cannot leave these to a later payload.
    before, _here.unclaimed = _here.unclaimed, unclaimed
    try:
        return decode()
    finally:
        _here.unclaimed = before


def claimed(owner: int, object_id: int) -> Any:
    """The `Hold`, or the Ref itself, that this thread has for the Ref that it is
    decoding; None: it has none."""
    return _here.unclaimed.get((owner, object_id))


_Refs = dict[int, "weakref.ref[T]"]


class Living(Generic[T]):
    """The objects that were added and are still there: it holds nothing alive. Any
    thread may add and list.

    A `weakref.WeakSet` is iterated over by Python code, so it fails with a RuntimeError
    if another thread adds to it meanwhile. Here all are listed in one step of the
    interpreter.
    """

    def __init__(self) -> None:
        self._refs: _Refs[T] = {}

    def add(self, one: T) -> None:
        """Note it; again does nothing."""
        number = id(one)  # nobody else's before the reference has ended
        self._refs[number] = weakref.ref(one, partial(_forget, self._refs, number))

    def all(self) -> list[T]:
        """Those that are there now."""
        refs = list(self._refs.values())
        return [one for ref in refs if (one := ref()) is not None]


def _forget(refs: _Refs[T], number: int, ref: weakref.ref[T]) -> None:
    if refs.get(number) is ref:
        del refs[number]
