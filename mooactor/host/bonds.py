# SPDX-License-Identifier: MIT
"""Links: actors that die together. `moo.link` makes them.

Invariants:

* A link is between two actors, in both directions, and outlasts their restarts. It
  ends when one of the two is over, or with `moo.unlink`.
* An abnormal end of one ends the processes of all that are linked with it, directly or
  through others, at once and once: their deaths lead back to nobody. What comes after
  is up to the policy or the supervisor of each.
* An end is normal if the actor was stopped or exited with code 0. The end of the
  session spreads nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mooactor.host.eventloop import Line
from mooactor.host.supervised import Supervised
from mooactor.process.exits import ExitRecord
from mooactor.process.protocol import Link, Request, Unlink

if TYPE_CHECKING:
    from mooactor.host.home import Home


class Bonds:
    """The links of a session's actors."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def operations(self) -> dict[type[Request], Callable[[Line, Any, list[int]], None]]:
        """The requests of any process."""
        return {Link: self._link, Unlink: self._unlink}

    def _link(self, line: Line, request: Link, fds: list[int]) -> None:
        pair = self._pair(request)
        over = [i for i, actor in enumerate(pair) if actor is None or actor.over]
        one, other = pair
        if not over and one is not None and other is not None and one is not other:
            one.bonds.add(other)
            other.bonds.add(one)
        self._home.loop.reply(line, request.rid, over[0] if over else None)

    def _unlink(self, line: Line, request: Unlink, fds: list[int]) -> None:
        one, other = self._pair(request)
        if one is not None and other is not None:
            one.bonds.discard(other)
            other.bonds.discard(one)
        self._home.loop.reply(line, request.rid, True)

    def _pair(self, request: Link | Unlink) -> list[Supervised | None]:
        return [self._home.actor_of(one) for one in (request.id, request.other)]

    def led_to(self, actor: Supervised, record: ExitRecord) -> list[Supervised]:
        """The actors to which this end of its process spreads: all that are linked with
        it, directly or through others. None if the end was normal, or came over a link
        itself: of actors that die together only the first looks for the others."""
        is_over_a_link = actor.fate is not None and actor.fate.kind == "link"
        if is_over_a_link or self._home.ending or _is_normal(record):
            return []
        seen, found = {actor}, [actor]
        for one in found:  # which grows meanwhile
            fresh = [other for other in one.bonds if other not in seen]
            seen.update(fresh)
            found += fresh
        return found[1:]

    def spread(
        self, actor: Supervised, record: ExitRecord, others: list[Supervised]
    ) -> None:
        """Its process has ended: end those of the `others`, as `led_to` gave them while
        it was not over yet."""
        for other in others:
            fate = ExitRecord.follows("link", actor.label, record)
            self._home.lifetimes.fell(other, fate)

    def drop(self, actor: Supervised) -> None:
        """It is over: so are its links."""
        for other in actor.bonds:
            other.bonds.discard(actor)
        actor.bonds.clear()


def _is_normal(record: ExitRecord) -> bool:
    return record.kind == "stopped" or (record.kind == "exit" and not record.exitcode)
