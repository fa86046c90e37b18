# SPDX-License-Identifier: MIT
"""Values that came before the calls that are to use them.

A call was sent within microseconds of its values, so one that has not come after a
minute never will: its caller died in between. The value is dropped then, and a call
that comes all the same is told so.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from time import perf_counter

from mooactor import errors

#: The time that a value waits for its call.
_UNCLAIMED_S = 60.0
_LATELY = 1024  # tokens that are remembered


class Lately(OrderedDict[int, None]):
    """The last tokens of which something is true."""

    def remember(self, token: int) -> None:
        self[token] = None
        if len(self) > _LATELY:
            self.popitem(last=False)


class Unclaimed:
    """Those of one process. Added to in the poller's thread, and dropped there or in
    the housekeeper's, perhaps in both at once."""

    def __init__(
        self,
        later: Callable[[float, Callable[[], None]], None],
        abandon: Callable[[int], None],
    ) -> None:
        """`later`: call in so many seconds. `abandon`: nobody waits for this token."""
        #: By token: since when it waits.
        self.since: OrderedDict[int, float] = OrderedDict()
        self.given_up = Lately()
        self._later = later
        self._abandon = abandon
        self._will_sweep = False

    def claim(self, token: int) -> None:
        """Its call is here, or will never be."""
        self.since.pop(token, None)

    def sweep_later(self) -> None:
        """Look once more, also if no other value comes for which nobody waits."""
        if not self._will_sweep:
            self._later(_UNCLAIMED_S, self._sweep)
            self._will_sweep = True

    def _sweep(self) -> None:
        self._will_sweep = False
        self.drop_old()
        if self.since:
            self.sweep_later()

    def drop_old(self) -> None:
        """Those that have waited for too long."""
        now = perf_counter()
        while self.since:
            try:
                oldest, since = next(iter(self.since.items()))
            except (StopIteration, RuntimeError):
                return  # the other thread was quicker
            if now - since < _UNCLAIMED_S:
                return
            if self.since.pop(oldest, None) is not None:
                self._abandon(oldest)
                self.given_up.remember(oldest)


def late() -> errors.MooError:
    """The error of a call that comes after one of its values was dropped."""
    return errors.ActorUnavailable(
        f"an argument arrived {_UNCLAIMED_S:.0f} s before its call and was dropped; "
        "call again",
        delivered=False,
    )
