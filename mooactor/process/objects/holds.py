# SPDX-License-Identifier: MIT
"""The receiving side of borrows: this process's holds of values, its own included.

`table` has the protocol. A payload with Refs in it names their borrows beside the
pickle; `Claims` are those borrows, as *holds*. Each Ref that is decoded claims the hold
of its own, and keeps it for as long as it lives. The claims keep all of them until they
are dropped with the payload, so that decoding can begin anew after a signal handler has
cut it short. So every borrow that arrives is given back: with its Ref, or with the
payload if no Ref has claimed it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from mooactor.process.objects.borrow import Borrows


T = TypeVar("T")


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
        self.lender: int | None = None
        if lender is not None:
            self.count(lender)

    def count(self, lender: int) -> None:
        """It was lent by `lender`, and is given back when it is collected."""
        self.lender = lender
        self.__class__ = CountedHold


class CountedHold(Hold):
    """One that is given back. Others need nothing done when they end: Python drops a
    Ctrl-C that comes while it runs a ``__del__``."""

    __slots__ = ()

    def __del__(self) -> None:
        if self.lender is not None and not self._borrows.ended:
            self._borrows.give_back_later(self, self.lender)


class Claims:
    """The borrows of one payload, from `arrive` on."""

    __slots__ = ("_borrows", "_lender", "_holds", "home")

    def __init__(
        self,
        borrows: Borrows,
        lender: int,
        lent: Iterable[tuple[int, int]],
        *,
        stays: bool = False,
    ) -> None:
        """`lent`: (owner, number) of each. `stays`: the first is the value itself, its
        `home`."""
        self._borrows = borrows
        self._lender = lender
        self._holds: dict[tuple[int, int], list[Hold]] = {}
        lent = iter(lent)
        self.home: Hold | None = None
        if stays:
            self.home = Hold(borrows, *next(lent), None)
        for owner, number in lent:
            hold = Hold(borrows, owner, number, None)
            self._holds.setdefault((owner, number), []).append(hold)

    def arrive(self) -> Claims:
        """Have them given back when they end. May be repeated, if that was cut short,
        until they are decoded."""
        for holds in ([self.home] if self.home else [], *self._holds.values()):
            for hold in holds:
                hold.count(self._lender)
                self._borrows.arrived(hold)
        return self

    def leave_home(self) -> None:
        """Give that hold back with the next record for its owner."""
        home, self.home = self.home, None
        if home is not None and home.lender is not None:
            self._borrows.give_back_beside(home, home.lender)
            # A second RELEASE does no harm: nobody else lends that.
            home.lender = None

    def decode(self, decode: Callable[[], T]) -> T:
        """Have this thread decode that payload; the Refs in it claim their holds. May
        be called again, for Refs in place of those."""
        unclaimed = {key: iter(holds) for key, holds in self._holds.items()}
        return claiming(unclaimed, decode)

    def give_back(self) -> None:
        """Keep none any more: those without a Ref are not needed."""
        for holds in self._holds.values():
            holds.clear()

    def borrows(self) -> list[tuple[int, int]]:
        """(owner, number) of each."""
        return [key for key, holds in self._holds.items() for _ in holds]


class _Decoding(threading.local):
    unclaimed: Mapping[tuple[int, int], Iterator[Any]] | None = None


_here = _Decoding()


def claiming(
    unclaimed: Mapping[tuple[int, int], Iterator[Any]], decode: Callable[[], T]
) -> T:
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
    unclaimed = _here.unclaimed
    found = None if unclaimed is None else unclaimed.get((owner, object_id))
    return None if found is None else next(found, None)


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


class Unsent(list[tuple[Any, ...]]):
    """Loans of a record that is not sent yet: the memory attached to it, the Refs in
    its pickle, and the values that follow it. Of each step so far it has the function
    that undoes it, and its arguments.

    Invariant: **all that a record lends is taken back, unless the record is sent**. A
    signal handler may raise at any point. So each step notes how it is undone: before
    it is taken, if that is a matter of degree; else right after, with no call in
    between. The sender empties the list right before it sends the record, with no call
    in between.
    """

    def take_back(self) -> None:
        """Undo them: the record is not sent."""
        while self:
            undo, *args = self.pop()
            undo(*args)


#: Of a record that lends nothing.
NOTHING = Unsent()
