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
from typing import TYPE_CHECKING

from mooactor.control.keys import actor_of
from mooactor.control.lifeline import Message
from mooactor.host.eventloop import Line
from mooactor.host.fields import number, required
from mooactor.host.supervised import Supervised
from mooactor.process.exits import ExitRecord

if TYPE_CHECKING:
    from mooactor.host.home import Home


class Bonds:
    """The links of a session's actors."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def operations(self) -> dict[str, Callable[[Line, Message, list[int]], None]]:
        """The requests of any process."""
        return {"link": self._link, "unlink": self._unlink}

    def _link(self, line: Line, message: Message, fds: list[int]) -> None:
        """Reply with the number, 0 or 1, of the first that is over; None: linked."""
        rid, pair = required(message, "rid", int), self._pair(message)
        over = [i for i, actor in enumerate(pair) if actor is None or actor.over]
        one, other = pair
        if not over and one is not None and other is not None and one is not other:
            one.bonds.add(other)
            other.bonds.add(one)
        self._home.loop.reply(line, rid, over[0] if over else None)

    def _unlink(self, line: Line, message: Message, fds: list[int]) -> None:
        rid, (one, other) = required(message, "rid", int), self._pair(message)
        if one is not None and other is not None:
            one.bonds.discard(other)
            other.bonds.discard(one)
        self._home.loop.reply(line, rid, True)

    def _pair(self, message: Message) -> list[Supervised | None]:
        ids = [actor_of(number(message, key)) for key in ("id", "other")]
        return [self._home.actors.get(actor_id) for actor_id in ids]

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
