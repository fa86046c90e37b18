# SPDX-License-Identifier: MIT
"""Waits of methods, as the search for deadlocks sees them; see `deadlock`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mooactor.control import envelope

if TYPE_CHECKING:
    from mooactor.control.links import Link
    from mooactor.process.objects.future import Future

#: A question for an actor: its process, the number and the flags of the record.
Question = tuple[int, int, int]


class Wait:
    """A wait of one method: ``needed`` of ``futures``."""

    __slots__ = ("futures", "needed", "stuck")

    def __init__(self, futures: Sequence[Future], needed: int) -> None:
        self.futures = futures
        self.needed = needed
        self.stuck: set[int] = set()  # those from which a probe came home

    @property
    def places(self) -> int:
        """The number of things that it waits for."""
        return len(self.futures)

    def calls_of(self, index: int) -> Iterator[Future]:
        """The calls under way that one of the futures is made of."""
        future = self.futures[index]
        for part in future.parts or (future,):
            if not part.state and part.link is not None:
                yield part

    def questions(self, index: int) -> Iterator[Question]:
        """What to ask the actors that will produce one of the futures."""
        for call in self.calls_of(index):
            link = call.link
            if link is not None:
                yield link.process_id, call.call_id, 0


class WaitForRoom:
    """A wait of one method for room in an actor's mailbox."""

    places = needed = 1

    def __init__(
        self, link: Link, pending: Mapping[int, Future], deadline: float | None
    ) -> None:
        """`pending`: the calls of this process, by id; `deadline`: the method's own."""
        self.link = link
        self.stuck: set[int] = set()
        self.cycle: tuple[str, ...] = ()  # once it is known to be hopeless
        self._pending = pending
        self._ends_at = math.inf if deadline is None else deadline

    def questions(self, index: int) -> Iterator[Question]:
        """What to ask the actor; nothing if there is room by now, or one of the calls
        will end by itself."""
        ids = list(self.link.calls)
        if len(ids) >= self.link.limit and not any(map(self._ends_before, ids)):
            yield self.link.process_id, sum(ids), envelope.ROOM

    def _ends_before(self, call_id: int) -> bool:
        future = self._pending.get(call_id)
        deadline = None if future is None else future.deadline
        return deadline is not None and deadline < self._ends_at
