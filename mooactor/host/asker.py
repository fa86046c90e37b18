# SPDX-License-Identifier: MIT
"""What one process of this session awaits of another session.

Invariant: once the other session is lost, `Asker.last_words` has an end for all of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from mooactor.control.keys import actor_of
from mooactor.control.messages import Message
from mooactor.host.addresses import is_reachable
from mooactor.process.exits import ExitRecord
from mooactor.process.protocol import (
    Died,
    Event,
    GetHandle,
    Gone,
    Locate,
    Located,
    Monitor,
    Reply,
    Request,
    Unmonitor,
    Watch,
    death_notice,
)

SOME_ACTOR = "an actor of another session"  # instead of a label


@dataclass(eq=False)
class Asker:
    """One process. ``number`` names it at the other session's home."""

    number: int
    _watched: dict[int, int] = field(default_factory=dict)  # incarnations, by actor
    _sought: set[int] = field(default_factory=set)  # processes that it looks for
    _asked: dict[int, type[Request]] = field(default_factory=dict)  # by rid
    # By number of a monitor: the label and the incarnation of its last event.
    _monitors: dict[int, tuple[str, int]] = field(default_factory=dict)

    def note(self, request: Request, label: str = SOME_ACTOR) -> None:
        """It asks for something of the actor of that label."""
        if isinstance(request, Watch):
            incarnation = request.incarnation & 0xFFFF
            self._watched.setdefault(actor_of(request.id), incarnation)
        elif isinstance(request, Locate):
            self._sought.add(request.id)
        elif isinstance(request, Monitor):
            self._monitors[request.monitor] = (label, 0)
        elif isinstance(request, Unmonitor):
            self._monitors.pop(request.monitor, None)
        if request.rid is not None:
            self._asked[request.rid] = type(request)

    def heard(self, message: Message) -> Message | None:
        """The other session's home tells it something: what it may hear of that, or
        None if it awaits no such thing. A process believes its own agent, so what only
        that can say is left out.

        Raises:
          ValueError: it makes no sense.
        """
        if isinstance(message, Reply):
            if not isinstance(message.value, None | bool | bytes):
                raise ValueError("the value answers no request of a process")
            awaited = self._asked.pop(message.rid, None) is not None
            return _if(awaited, Reply(message.rid, message.value, message.failed))
        if isinstance(message, Located | Gone):
            if isinstance(message, Located):
                message = replace(message, same=False, caller=False)
                if not is_reachable(message.address):
                    raise ValueError(f"address={message.address!r:.80} is none")
            awaited = message.id in self._sought
            self._sought.discard(message.id)
            return _if(awaited, message)
        if isinstance(message, Died):
            awaited = self._heard_of_death(message.id, message.following)
            return _if(awaited, message)
        assert isinstance(message, Event)
        return _if(self._heard_event(message), message)

    def _heard_of_death(self, actor_id: int, following: int | None) -> bool:
        watched = actor_id in self._watched
        if watched and following is not None:
            self._watched[actor_id] = following
        else:
            self._watched.pop(actor_id, None)
        return watched

    def _heard_event(self, event: Event) -> bool:
        watched = event.monitor in self._monitors
        if watched and not event.last:
            self._monitors[event.monitor] = (event.actor, event.incarnation)
        else:
            self._monitors.pop(event.monitor, None)
        return watched

    def mourned(self) -> list[int]:
        """The processes and actors that `last_words` calls dead."""
        return [*self._watched, *self._sought]

    def last_words(self, record: ExitRecord) -> list[Message]:
        """The ends of all that it awaits."""
        found: list[Message] = [
            death_notice(actor_id + incarnation, record)
            for actor_id, incarnation in self._watched.items()
        ]
        found += [Gone(one) for one in self._sought]
        found += [
            Reply(rid, None if kind is GetHandle else True)
            for rid, kind in self._asked.items()
        ]
        found += [
            Event("died", label, incarnation, record, True, monitor)
            for monitor, (label, incarnation) in self._monitors.items()
        ]
        return found


def _if(awaited: bool, message: Message) -> Message | None:
    return message if awaited else None
