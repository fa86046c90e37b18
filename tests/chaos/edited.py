# SPDX-License-Identifier: MIT
"""`Edited`: a correct history that can be changed, to break a promise in it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

from tests.chaos.history import Event
from tests.chaos.simulator import correct_history
from tests.chaos.story import SLACK_S


class Unsuitable(Exception):
    """This history has nothing of the kind that is to be changed."""


class Edited:
    """The history of one seed. Its events stay in the order of time."""

    def __init__(self, seed: int) -> None:
        self.events = correct_history(seed)
        self.chance = random.Random(seed)

    def find(self, what: str, **facts: Any) -> list[Event]:
        """The events of a kind that have these facts."""
        return [
            event
            for event in self.events
            if event.what == what
            and all(event.facts.get(name) == value for name, value in facts.items())
        ]

    def pick(self, what: str, **facts: Any) -> Event:
        """Some event of a kind that has these facts.

        Raises:
          Unsuitable: there is none.
        """
        if not (found := self.find(what, **facts)):
            raise Unsuitable
        return self.chance.choice(found)

    def sent(self, call: str) -> Event:
        """The beginning of a call."""
        return self.find("sent", call=call)[0]

    def drop(self, *events: Event) -> None:
        for event in events:
            self.events.remove(event)

    def add(self, event: Event) -> None:
        self.events.append(event)
        self.events.sort(key=lambda one: one.t)

    def change(self, event: Event, t: float | None = None, **facts: Any) -> None:
        """Move an event to another time, or change some of its facts."""
        self.drop(event)
        when = event.t if t is None else t
        self.add(event._replace(t=when, facts={**event.facts, **facts}))

    def after(self, event: Event, what: str, who: str = "", **facts: Any) -> None:
        """Insert an event right after another one."""
        self.add(Event(event.t + 1e-6, who or event.who, what, facts))

    def pairs(self, what: str) -> Iterator[tuple[Event, Event]]:
        """Events of a kind, each with each later one."""
        return itertools.combinations(self.find(what), 2)

    def peaceful_end(self) -> Event:
        """The end of a call with a value, long after and before any fault.

        Raises:
          Unsuitable: faults are everywhere.
        """
        faults = [fault.t for fault in self.find("fault")]
        for event in self.find("ended", how="value"):
            start = self.sent(event.call).t
            if not any(start - 2 * SLACK_S < t < event.t for t in faults):
                return event
        raise Unsuitable
