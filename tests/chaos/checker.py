# SPDX-License-Identifier: MIT
"""The checker: reads the histories of a chaos run, and names every broken promise.

``python -m tests.chaos.checker DIRECTORY`` checks a run that was kept.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator

from tests.chaos import history
from tests.chaos.history import Event
from tests.chaos.rules import calls, deaths, names, rest, values
from tests.chaos.story import Story, shown
from tests.chaos.violation import Violation

Rule = Callable[[Story], Iterator[Violation]]

#: By the names under which violations are reported.
RULES: dict[str, Rule] = {
    "ended once": calls.every_call_ends_once,
    "at most once": calls.none_runs_too_often,
    "order": calls.calls_start_in_the_order_sent,
    "delivered": calls.errors_say_rightly_whether_it_ran,
    "errors": calls.errors_are_named_and_have_a_reason,
    "deadlines": calls.calls_end_within_their_deadlines,
    "tells": calls.tells_run_unless_their_actor_died,
    "values": values.values_are_right,
    "streams": values.streams_have_every_item_in_order,
    "counts": values.no_count_is_given_twice,
    "refs": values.refs_have_their_values,
    "unique names": names.a_name_has_one_holder,
    "lookups": names.lookups_find_the_holder,
    "notices": deaths.notices_come_once_and_in_order,
    "missing notices": deaths.every_death_is_noticed,
    "false deaths": deaths.deaths_have_a_reason,
    "the dead": deaths.the_dead_do_not_act,
    "leftovers": rest.nothing_is_left_behind,
    "participants": rest.histories_make_sense,
}


def check(events: list[Event]) -> list[Violation]:
    """All violations of all rules; `events` in the order of time."""
    story = Story(events)
    return [
        violation._replace(rule=name)
        for name, rule in RULES.items()
        for violation in rule(story)
    ]


def report(violations: list[Violation], most: int = 5) -> str:
    """The violations as text, and the first few of each rule with their events."""
    counts = Counter(violation.rule for violation in violations)
    lines = [f"{rule}: {number} violations" for rule, number in counts.items()]
    for rule in counts:
        some = [violation for violation in violations if violation.rule == rule]
        for one in some[:most]:
            lines += [f"  [{rule}] {one.text}", shown(one.events)]
    return "\n".join(lines)


def summary(events: list[Event]) -> str:
    """What happened, in one line."""
    story = Story(events)
    ends = Counter(event.facts.get("error") or "value" for event in story.of("ended"))
    faults = Counter(event.kind for event in story.of("fault"))
    parts = (
        f"{len(story.calls)} calls, {len(story.births)} processes",
        "ends " + _counted(ends),
        "faults " + _counted(faults),
    )
    return "; ".join(parts)


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {n}" for name, n in counter.most_common()) or "none"


def main(directory: str) -> int:
    events = history.read(directory)
    violations = check(events)
    print(summary(events))
    print(report(violations) or "no violation")
    return int(bool(violations))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
