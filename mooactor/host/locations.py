# SPDX-License-Identifier: MIT
"""Where processes can be reached, for those that want to connect to them.

A process in a session of several hosts says so itself, once its inbox is there; others
ask by its id. Invariants:

* Each question is answered once: when the process can be reached, or when it is known
  that it never will be.
* The answer depends on who asks: a process of the same directory connects to a file.
  A `mooactor host` on the driver's machine may share its directory, and others have one
  each, whatever their names are.
* A process that another one asks for is told where that one is: it will have to answer,
  and makes its own connection meanwhile. If it cannot, the other one is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from mooactor.control.keys import actor_of
from mooactor.host.eventloop import Line
from mooactor.process.protocol import CannotReach, Gone, Located, Unreached

if TYPE_CHECKING:
    from mooactor.host.home import Home
    from mooactor.host.lifetimes import Supervised
    from mooactor.host.remote import RemoteSite
    from mooactor.host.site import Site


class _Place(NamedTuple):
    """Where one process can be reached, and the line to it."""

    located: Located  # the answer, but for ``same``
    site: Site | RemoteSite
    line: Line


class Locations:
    """Of all processes of a session, the driver included."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._known: dict[int, _Place] = {}  # by process
        self._asked: dict[int, list[Line]] = {}

    def tell(self, line: Line, address: str, endpoint: bytes) -> None:
        """The process at the end of `line` can be reached."""
        process_id, site = self.process_of(line), self.site_of(line)
        if process_id is None or site is None:
            return  # it has ended meanwhile
        located = Located(process_id, site.host, address, endpoint)
        self._known[process_id] = _Place(located, site, line)
        for asker in self._asked.pop(process_id, ()):
            self._answer(asker, process_id)

    def ask(self, line: Line, process_id: int) -> None:
        """The process at the end of `line` wants to connect to another one."""
        if process_id in self._known:
            self._answer(line, process_id)
        elif self._may_come(process_id):
            self._asked.setdefault(process_id, []).append(line)
        else:
            self._home.loop.post(line, Gone(process_id))

    def unreached(self, line: Line, said: Unreached) -> None:
        """The process at the end of `line` has no connection to another one."""
        sender, found = self.process_of(line), self._known.get(said.id)
        here = self.site_of(line)
        if sender is None or here is None or found is None:
            return  # it has ended meanwhile
        where = found.located.address
        news = CannotReach(sender, here.host, where, said.latest, said.mark, said.why)
        self._home.loop.post(found.line, news)

    def _may_come(self, process_id: int) -> bool:
        config = self._home.config
        if config is not None and process_id == config.process_id:
            return True
        actor = self._home.actors.get(actor_of(process_id))
        return actor is not None and not actor.over and process_id >= actor.process_id

    def _answer(self, line: Line, process_id: int) -> None:
        found, asking = self._known[process_id], self.site_of(line)
        same = asking is not None and self._room(found.site) is self._room(asking)
        self._home.loop.post(line, replace(found.located, same=same))
        asker = self._known.get(self.process_of(line) or 0)
        if asker is not None and not same:
            self._home.loop.post(found.line, replace(asker.located, caller=True))

    def process_of(self, line: Line) -> int | None:
        """The id of the process at its end; None: it has none, or is another
        session's."""
        config = self._home.config
        if line is self._home.driver and config is not None:
            return config.process_id
        actor = self._home.by_line.get(line)
        return None if actor is None else actor.process_id

    def _room(self, site: Site | RemoteSite) -> Site | RemoteSite:
        """The site whose directory its processes are in."""
        return self._home.sites.here if getattr(site, "near", False) else site

    def site_of(self, line: Line) -> Site | RemoteSite | None:
        """Where the process at the end of `line` is; None: in another session."""
        actor = self._home.by_line.get(line)
        sites = self._home.sites
        if actor is not None:
            return sites.of(actor)
        return sites.here if line is self._home.driver else None

    def process_lost(self, process_id: int) -> None:
        """A process is dead. Those that asked for it hear that nothing will come."""
        self._known.pop(process_id, None)
        for line in self._asked.pop(process_id, ()):
            self._home.loop.post(line, Gone(process_id))

    def forget(self, actor: Supervised) -> None:
        """An actor is over."""
        for process_id in [one for one in self._asked if actor_of(one) == actor.id]:
            self.process_lost(process_id)

    def line_closed(self, line: Line) -> None:
        """A process asks nothing any more."""
        for lines in self._asked.values():
            if line in lines:
                lines.remove(line)
