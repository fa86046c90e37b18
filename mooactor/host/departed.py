# SPDX-License-Identifier: MIT
"""Actors of other sessions that are lost: their ends are told to later askers, too."""

from __future__ import annotations

from collections.abc import Mapping

from mooactor.control.keys import actor_of
from mooactor.control.messages import Message
from mooactor.host.asker import Asker
from mooactor.process.exits import ExitRecord
from mooactor.process.protocol import Served

MOST = 1 << 14  # kept; after that the oldest are unknown


class Departed:
    """Those that this home knew of, by id, with the cause of their end."""

    def __init__(self) -> None:
        self._ends: dict[int, tuple[str, ExitRecord]] = {}  # oldest first

    def add(self, labels: Mapping[int, str], record: ExitRecord) -> None:
        """The session that had these actors is lost."""
        for actor_id, label in labels.items():
            self._ends.pop(actor_id, None)
            self._ends[actor_id] = label, record
        while len(self._ends) > MOST:
            del self._ends[next(iter(self._ends))]

    def answer(self, request: Served) -> list[Message] | None:
        """What somebody hears who asks for one of them; None: it is none of them."""
        end = self._ends.get(actor_of(request.id))
        if end is None:
            return None
        asker, (label, record) = Asker(0), end
        asker.note(request, label)
        return asker.last_words(record)
