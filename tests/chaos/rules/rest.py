# SPDX-License-Identifier: MIT
"""Rules of the run as a whole: nothing is left, and the histories make sense."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.chaos.history import Event
from tests.chaos.story import Story
from tests.chaos.violation import Violation


def nothing_is_left_behind(story: Story) -> Iterator[Violation]:
    """No process, socket, file or memory of a session is there after its end."""
    for event in story.of("left"):
        yield Violation(f"left behind: {event.facts['text']}", [event])


def histories_make_sense(story: Story) -> Iterator[Violation]:
    """Participants are born first and end last, and know the calls that they end.

    Of a call whose caller was killed while it noted it, the note may be missing.
    """
    first: dict[str, Event] = {}
    ended: dict[str, Event] = {}
    for event in story.events:
        if first.setdefault(event.who, event).what != "born":
            yield Violation(f"{event.who} acted before its birth", [event])
            first[event.who] = event._replace(what="born")
        if event.who in ended:
            yield Violation(f"{event.who} acted after its end", [event])
        if event.what == "over":
            ended[event.who] = event
    yield from _doubles(story)
    for event in story.strays:
        yield Violation(f"call {event.call} was sent by nobody", [event])


def _doubles(story: Story) -> Iterator[Violation]:
    """An incarnation has one process, and a call is sent once."""
    by_key: dict[tuple[str, object], list[Event]] = defaultdict(list)
    for event in story.of("sent"):
        by_key["call", event.call].append(event)
    for event in story.of("born"):
        if event.actor:
            by_key[f"incarnation of {event.actor}", event.incarnation].append(event)
    for (kind, which), events in by_key.items():
        if len(events) > 1:
            yield Violation(f"{kind} {which} is there {len(events)} times", events)
