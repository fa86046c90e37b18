# SPDX-License-Identifier: MIT
"""Rules of values: results, items of streams, counters that are restored, Refs."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

from tests.chaos.history import Event
from tests.chaos.rules.calls import OF_DEATHS
from tests.chaos.story import Call, Story, value_of
from tests.chaos.violation import Violation


def values_are_right(story: Story) -> Iterator[Violation]:
    """A caller gets what a run of its call returned, which is what it should be; and
    the method got the arguments that were sent."""
    for call in story.calls.values():
        yield from _wrong_results(call)
        expected = call.sent.facts.get("argument")
        for run in call.ran:
            if "got" in run.facts and run.got != expected:
                text = f"{call} got {run.got!r} for an argument"
                yield Violation(f"{text}, not {expected!r}", call.events())


def _wrong_results(call: Call) -> Iterator[Violation]:
    returned = [value_of(event) for event in call.done]
    for end in call.ended:
        if end.how != "value":
            continue
        value = value_of(end)
        if value not in returned:
            text = f"{call} gave {value!r}, and its runs returned {returned!r}"
            yield Violation(text, call.events())
        elif "expect" in call.sent.facts and value != call.sent.expect:
            text = f"{call} gave {value!r} instead of {call.sent.expect!r}"
            yield Violation(text, call.events())


def streams_have_every_item_in_order(story: Story) -> Iterator[Violation]:
    """Items come in order, each once and right; all of them if the end is a value."""
    for call in story.calls.values():
        if "items" not in call.sent.facts:
            continue
        numbers = [event.n for event in call.items]
        if numbers != list(range(len(numbers))):
            yield Violation(f"{call} gave items {numbers}", call.events())
        elif any(value_of(event) != event.n for event in call.items):
            yield Violation(f"{call} gave wrong items", call.events())
        ended = any(end.how == "value" for end in call.ended)
        if ended and len(numbers) != call.sent.items:
            text = f"{call} ended well after {len(numbers)} of {call.sent.items} items"
            yield Violation(text, call.events())
        elif any(call.ended[0].t < event.t for event in call.items if call.ended):
            yield Violation(f"{call} gave items after its end", call.events())


def no_count_is_given_twice(story: Story) -> Iterator[Violation]:
    """An actor counts its calls, through restarts: of two calls, the one that was sent
    after the other had ended has the higher count, and no count is given twice."""
    counts: dict[str, list[tuple[Call, Event]]] = defaultdict(list)
    for call in story.calls.values():
        if call.sent.method == "count":
            for end in call.ended:
                if end.how == "value" and isinstance(end.value, int):
                    counts[call.sent.to].append((call, end))
    for given in counts.values():
        yield from _wrong_counts(sorted(given, key=lambda pair: pair[1].value))


def _wrong_counts(given: list[tuple[Call, Event]]) -> Iterator[Violation]:
    """`given`: by their values. A call that was sent after another one with a higher
    count had ended was given too low a count."""
    for (call, end), (other, later) in itertools.pairwise(given):
        if end.value == later.value:
            text = f"count {end.value} was given to {call} and to {other}"
            yield Violation(text, call.events() + other.events())
    soonest: Event | None = None
    for call, end in reversed(given):
        if soonest is not None and call.sent.t > soonest.t:
            text = f"{call} got count {end.value} when {soonest.value} had been given"
            yield Violation(text, [call.sent, end, soonest])
        if soonest is None or end.t < soonest.t:
            soonest = end


def refs_have_their_values(story: Story) -> Iterator[Violation]:
    """Whoever reads a Ref gets its value, or the death of the process that made it."""
    made = {event.ref: event for event in story.of("made")}
    begun = {event.read: event for event in story.of("reading")}
    seen: set[str] = set()
    for end in story.of("read"):
        source, start = made.get(end.ref), begun.get(end.read)
        if source is None or start is None or end.read in seen:
            yield Violation(f"Ref {end.ref} was read out of nothing", [end])
            continue
        seen.add(end.read)
        if end.how == "value":
            if end.value != source.value:
                text = f"Ref {end.ref} gave {end.value!r} instead of {source.value!r}"
                yield Violation(text, [source, start, end])
        elif not _may_be_lost(story, source, start, end):
            text = f"Ref {end.ref} gave {end.error}, and its maker had not died"
            yield Violation(text, [source, start, end])


def _may_be_lost(story: Story, source: Event, start: Event, end: Event) -> bool:
    if end.error not in OF_DEATHS:
        return False
    hosts = [story.host_of(source.who), story.host_of(end.who)]
    maker = story.births.get(source.who)
    actor = maker.actor if maker else ""
    troubles = story.troubles(actor) if actor else []
    # A process that has died stays dead: its Refs are lost from then on.
    died = any(source.t <= t.end and t.start <= end.t for t in troubles)
    return died or story.session_over <= end.t or story.cut_off(hosts, source.t, end.t)
