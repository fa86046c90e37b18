# SPDX-License-Identifier: MIT
"""What one process of this session awaits of another session.

Invariant: once the other session is lost, `Asker.last_words` has an end for all of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mooactor.control.keys import actor_of
from mooactor.control.lifeline import Message
from mooactor.host.supervised import death_notice
from mooactor.process.exits import ExitRecord

SOME_ACTOR = "an actor of another session"  # instead of a label


@dataclass(eq=False)
class Asker:
    """One process. ``number`` names it at the other session's home."""

    number: int
    _watched: dict[int, int] = field(default_factory=dict)  # incarnations, by actor
    _sought: set[int] = field(default_factory=set)  # processes that it looks for
    _asked: dict[int, str] = field(default_factory=dict)  # requests, by rid
    # The last event of each monitor, by its number.
    _monitors: dict[int, Message] = field(default_factory=dict)

    def note(self, message: Message, label: str = SOME_ACTOR) -> None:
        """It asks for something of the actor of that label.

        Raises:
          LookupError, TypeError: the request makes no sense; nothing is noted.
        """
        op, rid = message.get("op"), message.get("rid")
        if op == "watch":
            incarnation = message["incarnation"] & 0xFFFF
            self._watched.setdefault(actor_of(message["id"]), incarnation)
        elif op == "locate":
            self._sought.add(message["id"])
        elif op == "monitor":
            nothing_yet = {"actor": label, "incarnation": 0}
            self._monitors[message["monitor"]] = nothing_yet
        elif op == "unmonitor":
            self._monitors.pop(message["monitor"], None)
        if type(rid) is int:
            self._asked[rid] = str(op)

    def heard(self, message: Message) -> bool:
        """The other session's home tells it something; False: it awaits no such thing.

        `message`: as `neighbor_fields` has checked it.
        """
        what = message["ev"]
        if what == "reply":
            return self._asked.pop(message["rid"], None) is not None
        if what == "located":
            sought = message["id"] in self._sought
            self._sought.discard(message["id"])
            return sought
        if what == "died":
            return self._heard_of_death(message["id"], message["following"])
        return self._heard_event(message["monitor"], message)

    def _heard_of_death(self, actor_id: int, following: int | None) -> bool:
        watched = actor_id in self._watched
        if watched and following is not None:
            self._watched[actor_id] = following
        else:
            self._watched.pop(actor_id, None)
        return watched

    def _heard_event(self, monitor: int, event: Message) -> bool:
        watched = monitor in self._monitors
        if watched and not event["last"]:
            self._monitors[monitor] = event
        else:
            self._monitors.pop(monitor, None)
        return watched

    def mourned(self) -> list[int]:
        """The processes and actors that `last_words` calls dead."""
        return [*self._watched, *self._sought]

    def last_words(self, record: ExitRecord) -> list[Message]:
        """The ends of all that it awaits."""
        found = [
            death_notice(actor_id + incarnation, record, None)
            for actor_id, incarnation in self._watched.items()
        ]
        found += [{"ev": "located", "id": one, "gone": True} for one in self._sought]
        found += [
            {"ev": "reply", "rid": rid, "value": None if op == "handle" else True}
            for rid, op in self._asked.items()
        ]
        end = {"ev": "event", "what": "died", "record": record.plain(), "last": True}
        for monitor, event in self._monitors.items():
            about = {key: event[key] for key in ("actor", "incarnation")}
            found.append({**end, **about, "monitor": monitor})
        return found
