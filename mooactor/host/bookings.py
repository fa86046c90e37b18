# SPDX-License-Identifier: MIT
"""Bookings: places for several actors, which their hosts reserve before one is spawned.

Invariant: all are reserved, by the hosts themselves, or none is. What this home knows
of a host may be out of date, for other sessions reserve there, too; so each host is
asked. If one refuses, or is gone, what the others have reserved is given back, and the
choice is made again without it. Hosts are asked one after the other, in the order of
their names: so of several sessions that want the same ones, one gets them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mooactor.host.placement import NoPlace, reasons
from mooactor.process.needs import Needs

if TYPE_CHECKING:
    from mooactor.host.home import Home
    from mooactor.host.remote import RemoteSite

#: Called with the host of each actor; or with None, and the reason.
Answer = Callable[[list[str] | None, str], None]


class Booking:
    """One. It calls `answer` once, unless its actors are not all `wanted` any more:
    whoever has unplaced or spawned them has taken care of their places."""

    def __init__(
        self,
        home: Home,
        ids: Sequence[int],
        needs: Needs,
        wanted: Callable[[], bool],
        answer: Answer,
    ) -> None:
        self._home = home
        self._ids = ids
        self._needs = needs
        self._wanted = wanted
        self._answer = answer
        self._refusals: dict[str, str] = {}  # by host
        self._left: list[tuple[RemoteSite, list[int]]] = []  # to be asked

    def choose(self) -> None:
        """Choose their hosts, and ask these."""
        sites = self._home.sites
        try:
            sites.place(self._ids, self._needs, self._refusals)
            self._left = sites.asked_for(self._ids)
        except NoPlace as error:
            sites.unplace(self._ids)
            self._answer(None, reasons(self._refusals.values(), str(error)))
        else:
            self._ask_next()

    def _ask_next(self) -> None:
        if self._left:
            site, holders = self._left.pop(0)
            site.reserve(holders, self._needs.amount, self._heard)
        else:
            sites = self._home.sites
            self._answer([sites.host_of(one) for one in self._ids], "")

    def _heard(self, site: RemoteSite, note: str, begun: bool) -> None:
        """A host has reserved, or tells why not; not `begun`: it cannot take part."""
        if not self._wanted():
            return
        sites = self._home.sites
        if note:
            named = note if begun else self._home.passes_over(site.host, note)
            self._refusals[site.host] = named
        elif all(map(sites.is_placed, self._ids)):
            self._ask_next()
            return
        sites.unplace(self._ids)  # if a host that had reserved is gone, the others
        self.choose()
