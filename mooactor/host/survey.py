# SPDX-License-Identifier: MIT
"""Surveys: every process of a session is asked how it is.

Its housekeeper answers, unless something holds the GIL. Those that do not answer in
time are listed without what only they know.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mooactor.control.lifeline import Message
from mooactor.host.supervised import Supervised

if TYPE_CHECKING:
    from mooactor.host.home import Home

Rows = list[dict[str, Any]]


class Surveys:
    """Those that a home has under way."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._numbers = itertools.count(1)
        self._open: dict[int, tuple[dict[int, Message], Callable[[Rows], None]]] = {}

    def begin(self, patience_s: float, then: Callable[[Rows], None]) -> None:
        """Call `then` with a row for each actor, after so many seconds at most."""
        number = next(self._numbers)
        self._open[number] = ({}, then)
        for actor in self._home.alive():
            assert actor.process is not None
            question = {"ev": "surveyed", "number": number}
            self._home.loop.post(actor.process.line, question)
        self._look(number)
        self._home.loop.later(patience_s, lambda: self._end(number))

    def answer(self, actor: Supervised, message: Message) -> None:
        """A process has answered."""
        found = self._open.get(message["number"])
        if found is not None:
            found[0][actor.id] = message
            self._look(message["number"])

    def _look(self, number: int) -> None:
        answers = self._open[number][0]
        if all(actor.id in answers for actor in self._home.alive()):
            self._end(number)

    def _end(self, number: int) -> None:
        found = self._open.pop(number, None)
        if found is None:
            return
        answers, then = found
        rows = []
        for actor in self._home.living.values():
            said = answers.get(actor.id, {})
            more = {key: said.get(key) for key in ("mailbox", "memory")}
            row = {**actor.summary(), "host": self._home.sites.host_of(actor.id)}
            rows.append({**row, "restarts": actor.incarnation, **more})
        then(rows)
