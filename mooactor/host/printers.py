# SPDX-License-Identifier: MIT
"""`Printers`: which actor a printed line is of.

Lines come with the label, the pid and the host of their process, as they are shown.
Actors without a name share a label, and one that is restarted has another pid; so
neither tells how many actors have printed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mooactor.host.home import Home
    from mooactor.host.supervised import Supervised

_MOST_KNOWN = 4096  # processes; then those that print are looked for again


class Printer(NamedTuple):
    """A process that has printed. `actor` is the id of its actor as in ``mooactor
    status``; empty if that is not known any more."""

    label: str
    pid: int
    actor: str = ""
    incarnation: int = 0


class Printers:
    """Those of one session."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._known: dict[tuple[str, int], tuple[Supervised, Printer]] = {}

    def of(self, label: str, pid: int, host: str) -> Printer:
        """The process with this pid on a host, "" being the home's own.

        Its last lines come before its end does, so it is still an actor's then. A pid
        may be given again, to another actor's process.
        """
        known = self._known.get((host, pid))
        if known is not None and self._is_there(known[0], pid, host):
            return known[1]
        for actor in self._home.alive():
            if self._is_there(actor, pid, host):
                found = Printer(label, pid, f"{actor.id:016x}", actor.incarnation)
                if len(self._known) >= _MOST_KNOWN:
                    self._known.clear()
                self._known[host, pid] = actor, found
                return found
        return Printer(label, pid)

    def _is_there(self, actor: Supervised, pid: int, host: str) -> bool:
        sites = self._home.sites
        where = host or sites.here.host
        return actor.pid == pid and sites.host_of(actor.id) == where
