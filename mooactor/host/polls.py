# SPDX-License-Identifier: MIT
"""Questions of a home to all of its neighbors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from mooactor.host.neighbor import Neighbor
from mooactor.host.protocol import Poll

#: Hears who has answered with a value that is not None, and that value; None and None
#: if nobody has.
Done = Callable[[Neighbor | None, Any], None]


@dataclass
class _Poll:
    done: Done
    open: set[Neighbor]  # those that have not answered


class Polls:
    """Those that are not over. One is over when all have answered, or one has with a
    value that is not None. A neighbor that is lost knows nothing."""

    def __init__(self) -> None:
        self._polls: dict[int, _Poll] = {}
        self._numbers = 0

    def ask(
        self,
        neighbors: Iterable[Neighbor],
        done: Done,
        *,
        name: str | None = None,
        actor_id: int | None = None,
    ) -> None:
        """Who has that name, or that actor?"""
        self._numbers += 1
        number = self._numbers
        poll = self._polls[number] = _Poll(done, set(neighbors))
        for neighbor in list(poll.open):
            neighbor.poll(Poll(number, name, actor_id))
        self._end_if_over(number)

    def answered(self, neighbor: Neighbor, number: int, value: Any) -> None:
        """One has answered a question; None: it knows nothing of that."""
        poll = self._polls.get(number)
        if poll is None or neighbor not in poll.open:
            return
        poll.open.discard(neighbor)
        if value is not None:
            del self._polls[number]
            poll.done(neighbor, value)
        else:
            self._end_if_over(number)

    def lost(self, neighbor: Neighbor) -> None:
        """It answers nothing any more."""
        for number in list(self._polls):
            self.answered(neighbor, number, None)

    def _end_if_over(self, number: int) -> None:
        poll = self._polls.get(number)
        if poll is not None and not poll.open:
            del self._polls[number]
            poll.done(None, None)
