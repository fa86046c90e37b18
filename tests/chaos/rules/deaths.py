# SPDX-License-Identifier: MIT
"""Rules of deaths: noticed once by everyone who watches, with reason, and for good."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

from tests.chaos.history import Event
from tests.chaos.story import SLACK_S, Birth, Story, Trouble
from tests.chaos.violation import Violation

#: After the kinds of events, with the difference of the incarnations, that may follow.
_NEXT = {
    "Started": {("Died", 0), ("Stopped", 0)},
    "Restarted": {("Died", 0), ("Stopped", 0)},
    "Died": {("Restarted", 1), ("Died", 1), ("Stopped", 0), ("Stopped", 1)},
    "Stopped": set(),
}


def _watches(story: Story) -> Iterator[tuple[Event, list[Event]]]:
    """Each watch with what was seen by it."""
    seen: dict[str, list[Event]] = defaultdict(list)
    for event in story.of("seen"):
        seen[event.watch].append(event)
    for start in story.of("watching"):
        yield start, seen[start.watch]


def notices_come_once_and_in_order(story: Story) -> Iterator[Violation]:
    """Each watcher sees a life: started, died, restarted, died, …, and one end."""
    for start, seen in _watches(story):
        for before, event in itertools.pairwise(seen):
            step = (event.kind, event.incarnation - before.incarnation)
            if step not in _NEXT[before.kind]:
                text = f"{start.watch} saw {event.kind} {event.incarnation}"
                then = f"after {before.kind} {before.incarnation}"
                yield Violation(f"{text} {then}", [start, before, event])


def every_death_is_noticed(story: Story) -> Iterator[Violation]:
    """A watcher that ends in good order has seen the end of the actor, and before it
    the death of each of its processes. The sudden end of the session ends watches."""
    over = {event.watch for event in story.of("unwatched")}
    for start, seen in _watches(story):
        if start.who not in story.over or story.was_lost:
            continue
        dead = [event for event in seen if event.kind in ("Died", "Stopped")]
        if start.watch not in over or not dead or dead[-1] is not seen[-1]:
            yield Violation(f"{start.watch} never saw the end", [start, *seen])
            continue
        known = {event.incarnation for event in dead}
        for birth in story.lives.get(start.actor, ()):
            if birth.t > start.t and birth.incarnation not in known:
                text = f"{start.watch} did not see how {birth.who} ended"
                yield Violation(text, [start, *seen])


def deaths_have_a_reason(story: Story) -> Iterator[Violation]:
    """A death that was noticed, and each process after the first one of an actor, has
    a fault before it that ends processes."""
    for event in story.of("seen"):
        if event.kind == "Died" and not _reason(story, event.actor, event.t):
            text = f"{event.actor} is said to have died, and nothing had happened to it"
            yield Violation(text, [event])
    for actor, births in story.lives.items():
        for birth in births:
            if birth.incarnation and not _reason(story, actor, birth.t):
                text = f"{birth.who} replaces a process to which nothing had happened"
                yield Violation(text, [])


def _reason(story: Story, actor: str, t: float) -> Trouble | None:
    for trouble in story.troubles(actor):
        if trouble.start <= t <= trouble.end:
            return trouble
    return None


def the_dead_do_not_act(story: Story) -> Iterator[Violation]:
    """Once a death was noticed, or a later process was born, a process does nothing.

    One on a host that was cut off may go on until that host's own patience ends.
    """
    dead: dict[str, tuple[float, Event | None]] = {}
    for event in story.of("seen"):
        if event.kind in ("Died", "Stopped"):
            for birth in story.lives.get(event.actor, ()):
                if birth.incarnation <= event.incarnation:
                    _since(dead, birth.who, event.t, event)
    for births in story.lives.values():
        for birth, later in itertools.pairwise(births):
            _since(dead, birth.who, later.t, None)
    for who, (since, event) in dead.items():
        if story.last[who] > since + _leave(story, story.births[who], since):
            acts = [one for one in story.events if one.who == who and one.t > since]
            notice = [event] if event else []
            yield Violation(f"{who} acted after its death", [*notice, *acts])


def _since(
    dead: dict[str, tuple[float, Event | None]], who: str, t: float, event: Event | None
) -> None:
    if who not in dead or t < dead[who][0]:
        dead[who] = (t, event)


def _leave(story: Story, birth: Birth, t: float) -> float:
    """For how long a process may still act: not at all on a host that is reachable."""
    return SLACK_S if story.cut_off([birth.host], birth.t, t) else 0.0
