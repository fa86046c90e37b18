# SPDX-License-Identifier: MIT
"""Surveys: every process of a session is asked how it is.

Its housekeeper answers, unless something holds the GIL. Those that do not answer in
time are listed without what only they know.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from mooactor.host.protocol import StatusRow
from mooactor.host.supervised import Supervised
from mooactor.process.protocol import Survey, Surveyed

if TYPE_CHECKING:
    from mooactor.host.home import Home

Rows = list[StatusRow]


class Surveys:
    """Those that a home has under way."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._numbers = itertools.count(1)
        self._open: dict[int, tuple[dict[int, Survey], Callable[[Rows], None]]] = {}

    def begin(self, patience_s: float, then: Callable[[Rows], None]) -> None:
        """Call `then` with a row for each actor, after so many seconds at most."""
        number = next(self._numbers)
        self._open[number] = ({}, then)
        for actor in self._home.alive():
            assert actor.process is not None
            self._home.loop.post(actor.process.line, Surveyed(number))
        self._look(number)
        self._home.loop.later(patience_s, lambda: self._end(number))

    def answer(self, actor: Supervised, answer: Survey) -> None:
        """A process has answered."""
        found = self._open.get(answer.number)
        if found is not None:
            found[0][actor.id] = answer
            self._look(answer.number)

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
            row = actor.summary(self._home.sites.host_of(actor.id))
            said = answers.get(actor.id)
            rows.append(
                StatusRow(
                    **asdict(row),
                    restarts=actor.incarnation,
                    mailbox=None if said is None else said.mailbox,
                    memory=None if said is None else said.memory,
                )
            )
        then(rows)
