# SPDX-License-Identifier: MIT
"""Learner groups as they form: on which host each is, and who hears that it cannot.

In this version the members of a group share memory, so they are processes of one site,
that of the first one that asked. A process of another site is refused, and those that
wait for it would wait in vain. So they are told: those that have asked at once, and
those that have not as soon as they ask.

Invariants:

* Of one refusal as many processes hear as are missing from the refused one's group,
  none twice, and none that was spawned later. All others that ask may form a group.
* A process that is told decides by itself: it ignores the news if its group has formed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from mooactor.host.eventloop import Line
from mooactor.process.protocol import SeveralHosts

if TYPE_CHECKING:
    from mooactor.host.home import Home
    from mooactor.host.remote import RemoteSite
    from mooactor.host.site import Site

_DRIVER = 0  # instead of an actor's id


class _Formation(msgspec.Struct):
    """One name."""

    site: Site | RemoteSite
    # Since the last refusal: those that have the memory, and each one's latest number.
    asked: dict[Line, int] = {}
    # Of the last refusal: its reason, the actors that were there and have not heard of
    # it, and how many of these belong to the refused one's group.
    why: str = ""
    uninformed: set[int] = set()
    missing: int = 0

    def informs(self, actor_id: int) -> bool:
        """Whether that actor has to hear of the refusal; it counts as having heard."""
        if not self.missing or actor_id not in self.uninformed:
            return False
        self.missing -= 1
        self.uninformed.discard(actor_id)
        return True


class Formations:
    """Of all learner groups of a session, by the name of their memory."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._formations: dict[str, _Formation] = {}

    def why_not(
        self, name: str, line: Line, here: Site | RemoteSite, members: int
    ) -> str:
        """Why the process at the end of `line`, on site `here`, cannot be in a group of
        so many members; empty: it can. The others of its group are told."""
        forming = self._formations.setdefault(name, _Formation(here))
        if forming.site is here:
            return ""
        forming.why = _several(name, forming.site.host, here.host)
        if not forming.informs(self._actor_at(line)):  # it is the first one refused
            others = {self._actor_at(one) for one in (*forming.asked, line)}
            forming.uninformed = {_DRIVER, *self._home.living} - others
            forming.missing = max(0, members - len(others))
        asked, forming.asked = forming.asked, {}
        for asker, number in asked.items():
            self._tell(asker, number, forming.why)
        return forming.why

    def waits(self, name: str, line: Line, number: int) -> None:
        """The process has the memory, and now waits for others, under that number."""
        forming = self._formations[name]
        if forming.informs(self._actor_at(line)):
            self._tell(line, number, forming.why)
        else:
            forming.asked[line] = number

    def _tell(self, line: Line, number: int, why: str) -> None:
        self._home.loop.post(line, SeveralHosts(number, why))

    def _actor_at(self, line: Line) -> int:
        actor = self._home.by_line.get(line)
        return _DRIVER if actor is None else actor.id

    def line_closed(self, line: Line) -> None:
        """A process waits no more."""
        for forming in self._formations.values():
            forming.asked.pop(line, None)

    def site_closed(self, site: RemoteSite) -> None:
        """Nothing of the session runs there any more, and what was there is gone."""
        for name, forming in list(self._formations.items()):
            if forming.site is site:
                del self._formations[name]


def _several(name: str, host: str, other: str) -> str:
    where = "of another agent there" if other == host else f"on host {other}"
    return (
        f"learner group {name.removeprefix('learners:')!r} has members on host {host} "
        f"already, and a process {where} was refused: in this version all members of a "
        "learner group must be actors on one host; place them with "
        f"moo.on(…, host={host!r})"
    )
