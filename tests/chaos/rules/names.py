# SPDX-License-Identifier: MIT
"""Rules of names: one holder at any time, and look-ups find that one.

An actor holds its name from its `spawn` on until it ends. It certainly still holds it
when one of its processes notes something, before its end has begun.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tests.chaos.history import Event
from tests.chaos.story import Story
from tests.chaos.violation import Violation


class Holder(NamedTuple):
    """An actor that had a name."""

    name: str
    actor: str
    since: float  # certainly from then
    until: float  # certainly until then
    gone: float  # certainly not any more after this
    spawned: Event


def holders(story: Story) -> dict[str, list[Holder]]:
    """Those of each name."""
    found: dict[str, list[Holder]] = defaultdict(list)
    for event in story.of("spawned"):
        if event.facts.get("name"):
            found[event.name].append(_holder(story, event))
    return found


def _holder(story: Story, event: Event) -> Holder:
    actor = event.actor
    acts = [story.last[birth.who] for birth in story.lives.get(actor, ())]
    ends = [t.start for t in story.troubles(actor) if t.end == math.inf]
    until = min([max(acts, default=event.t), *ends])
    gone = [e.t for e in story.of("removed", "unwatched") if e.actor == actor]
    return Holder(event.name, actor, event.t, until, min(gone, default=math.inf), event)


def a_name_has_one_holder(story: Story) -> Iterator[Violation]:
    """The times in which two actors certainly hold a name do not overlap."""
    for name, all_of_it in holders(story).items():
        certain = [one for one in all_of_it if one.since < one.until]
        certain.sort(key=lambda one: one.since)
        latest: Holder | None = None
        for one in certain:
            if latest is not None and one.since < latest.until:
                text = f"{one.actor} and {latest.actor} held the name {name!r} together"
                yield Violation(text, [latest.spawned, one.spawned])
            if latest is None or one.until > latest.until:
                latest = one


def lookups_find_the_holder(story: Story) -> Iterator[Violation]:
    """A look-up finds an actor that may have had the name meanwhile; and it finds one
    if an actor certainly held it all the time."""
    begun = {event.look: event for event in story.of("looking")}
    of_name = holders(story)
    for end in story.of("found"):
        start = begun[end.look]
        known = of_name.get(end.name, [])
        if end.actor:
            mine = [one for one in known if one.actor == end.actor]
            if any(one.gone < start.t for one in mine):
                text = f"a look-up of {end.name!r} found {end.actor}, which was gone"
                yield Violation(text, [start, end])
        elif any(one.since < start.t and end.t < one.until for one in known):
            text = f"a look-up of {end.name!r} found nobody, and it had a holder"
            yield Violation(text, [start, end, *(one.spawned for one in known)])
