# SPDX-License-Identifier: MIT
"""What a record lends before it is sent: the memory attached to it, the Refs in its
pickle, and the values that follow it.

Invariant: **all that a record lends is taken back, unless the record is sent**. A
signal handler may raise at any point. So each step notes how it is undone: before it is
taken, if that is a matter of degree; else right after, with no call in between. The one
who sends the record empties the list right before, with no call in between.
"""

from __future__ import annotations

from typing import Any


class Unsent(list[tuple[Any, ...]]):
    """How the steps so far are undone: of each the function, and its arguments."""

    def take_back(self) -> None:
        """Undo them: the record is not sent."""
        while self:
            undo, *args = self.pop()
            undo(*args)


#: Of a record that lends nothing.
NOTHING = Unsent()
