# SPDX-License-Identifier: MIT
"""The checker: reads the histories of a chaos run, and names every broken promise.

``python -m tests.chaos.checker DIRECTORY`` checks a run that was kept.
"""

from __future__ import annotations

import sys
from collections import Counter

import tests.chaos.agreements  # noqa: F401  (its rules are among `RULES`)
from tests.chaos import history
from tests.chaos.history import Event
from tests.chaos.rules import RULES, Violation
from tests.chaos.story import Story


def check(events: list[Event]) -> list[Violation]:
    """All violations of all rules; `events` in the order of time."""
    story = Story(events)
    return [
        violation._replace(rule=name)
        for name, find in RULES.items()
        for violation in find(story)
    ]


def report(violations: list[Violation], most: int = 5) -> str:
    """The violations as text, and the first few of each rule with their events."""
    counts = Counter(violation.rule for violation in violations)
    lines = [f"{rule}: {number} violations" for rule, number in counts.items()]
    for rule in counts:
        some = [violation for violation in violations if violation.rule == rule]
        for one in some[:most]:
            lines += [f"  [{rule}] {one.text}", _shown(one.events)]
    return "\n".join(lines)


def _shown(events: list[Event], most: int = 12) -> str:
    lines = [f"    {event}" for event in events[:most]]
    if len(events) > most:
        lines.append(f"    … and {len(events) - most} more")
    return "\n".join(lines)


def summary(events: list[Event]) -> str:
    """The story in one line."""
    story = Story(events)
    ends = Counter(event.facts.get("error") or "value" for event in story.of("ended"))
    faults = Counter(event.kind for event in story.of("fault"))
    calls = f"{len(story.calls)} calls, {len(story.births)} processes"
    return f"{calls}; ends {_counted(ends)}; faults {_counted(faults)}"


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
