# SPDX-License-Identifier: MIT
"""The rules for learner groups: operations end alike for all, dead or alive, and their
sums are those of the members; an Accumulator counts each contribution once.

Each contribution is a token of its own (tests/chaos/learners.py). So a result names
the operations of all members that are in it, without an order that all would have to
know.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.chaos.history import Event
from tests.chaos.rules import OF_DEATHS, Violation, rule
from tests.chaos.story import SLACK_S, Story

#: No operation, and no round, needs so long: the longest fault takes seven seconds, and
#: those that were killed by it a few more to come back.
HUNG_S = 25.0
#: Errors of operations and of loops, each of which has a reason.
OF_GROUPS = OF_DEATHS | {"PeerLost"}


class Operation(NamedTuple):
    """One member's call: what it gave, and how it ended, if it is known."""

    begins: Event
    finished: Event | None

    @property
    def got(self) -> tuple[int, ...]:
        """The tokens of its result, in the order of ranks or slots; none if it has
        not succeeded."""
        found = self.finished.facts.get("got", ()) if self.finished else ()
        return tuple(found)

    @property
    def is_known(self) -> bool:
        """Whether the member knows how it has ended: it was not killed before, and has
        not left the group in the middle, nor was it taken out."""
        finished = self.finished
        return finished is not None and finished.facts.get("error") != "RuntimeError"

    @property
    def tokens(self) -> set[int]:
        return {token for token in self.got if token}

    @property
    def events(self) -> list[Event]:
        return [self.begins] + ([self.finished] if self.finished else [])

    def __str__(self) -> str:
        return f"{self.begins.kind} {self.begins.op} of group {self.begins.group!r}"


def _operations(story: Story) -> list[Operation]:
    known = story.__dict__.get("_operations")
    if known is None:
        ends = {event.op: event for event in story.of("finished")}
        known = [Operation(one, ends.get(one.op)) for one in story.of("begins")]
        story.__dict__["_operations"] = known
    return list(known)


def _member(story: Story, who: str) -> int:
    """The number of a process as a member."""
    birth = story.births[who]
    return int(birth.actor, 16) + birth.incarnation


@rule("one outcome")
def all_in_a_result_have_it(story: Story) -> Iterator[Violation]:
    """If a member has a result, all whose contributions are in it have the same one,
    and none an error. Members that fail together say that the same one was lost."""
    by_token = {one.begins.token: one for one in _operations(story)}
    for one in by_token.values():
        for token in one.tokens:
            other = by_token.get(token)
            if other is not None and other.is_known and other.got != one.got:
                text = f"{one} has a result that {other}, which is in it, has not"
                yield Violation(text, one.events + other.events)
    lost: dict[tuple[str, int], Event] = {}
    for event in story.of("finished"):
        if event.how == "error" and event.error == "PeerLost":
            first = lost.setdefault((event.group, event.epoch), event)
            if event.text.partition(" during ")[0] != _reason(first):
                text = f"in epoch {event.epoch} members of {event.group!r} differ"
                yield Violation(f"{text} in what was lost", [first, event])


def _reason(event: Event) -> str:
    return str(event.text.partition(" during ")[0])


@rule("sums")
def results_are_those_of_the_participants(story: Story) -> Iterator[Violation]:
    """A result consists of tokens that members gave for it, one each; and these are
    the work's participants, this member among them."""
    by_token = {one.begins.token: one.begins for one in _operations(story)}
    for one in _operations(story):
        if not one.got:
            continue
        finished = one.finished
        assert finished is not None
        givers = [by_token.get(token) for token in one.got if token]
        if not finished.even:
            yield Violation(f"{one}: its elements differ", one.events)
        elif any(g is None or g.t > finished.t for g in givers):
            yield Violation(f"{one}: nobody gave {one.got}", one.events)
        elif any(_kind(g) != _kind(one.begins) for g in givers):
            yield Violation(f"{one} has tokens of other operations", one.events)
        elif one.begins.kind == "broadcast":
            if len(givers) != 1:
                yield Violation(f"{one} has not one root", one.events)
        else:
            members = [_member(story, g.who) for g in givers if g is not None]
            if sorted(members) != sorted(finished.members):
                text = f"{one} is of {members}, and says {finished.members}"
                yield Violation(text, one.events)
            elif one.begins.token not in one.tokens:
                yield Violation(f"{one} is without its own part", one.events)


def _kind(begins: Event | None) -> Any:
    return begins and (begins.group, begins.kind)


@rule("given once")
def no_contribution_is_in_two_results(story: Story) -> Iterator[Violation]:
    """All results that have a token are the same one."""
    first: dict[int, Operation] = {}
    for one in _operations(story):
        for token in one.tokens:
            other = first.setdefault(token, one)
            if other.got != one.got:
                text = f"token {token} is in the results of {other} and {one}"
                yield Violation(text, other.events + one.events)


@rule("views")
def an_epoch_has_one_view(story: Story) -> Iterator[Violation]:
    """All that are in an epoch know the same members, and only these have parts in
    results that it has from its begin to its end."""
    views: dict[tuple[str, int], Event] = {}
    for event in story.of("view"):
        first = views.setdefault((event.group, event.epoch), event)
        if event.members != first.members:
            text = f"epoch {event.epoch} of {event.group!r} has two lists of members"
            yield Violation(text, [first, event])
        elif _member(story, event.who) not in event.members:
            yield Violation(f"{event.who} is outside of its view", [event])
    for event in story.of("finished"):
        view = views.get((event.group, event.facts.get("epoch") or -1))
        if view and event.how == "value" and event.members != view.members:
            text = f"{event.op} succeeded with other members than its view has"
            yield Violation(text, [view, event])


@rule("group errors")
def errors_of_groups_have_a_reason(story: Story) -> Iterator[Violation]:
    """Operations fail, and loops end, only if a member is gone or a host is cut off:
    nobody disagrees, and nothing takes too long."""
    begun = {event.op: event.t for event in story.of("begins")}
    for event in story.of("finished", "gave-up"):
        if event.facts.get("how", "error") != "error" or _left(story, event):
            continue
        since = begun.get(event.facts.get("op", ""), event.t)
        if event.error not in OF_GROUPS and not event.facts.get("taken_out"):
            yield Violation(f"{event.who} got {event.error} in a group", [event])
        elif not _disturbed(story, event.group, since, event.t):
            text = f"{event.who} got {event.error}, and nothing had happened"
            yield Violation(text, [event])


def _left(story: Story, event: Event) -> bool:
    """Whether its process was told to end, and so left in the middle."""
    birth = story.births[event.who]
    removed = [e.t for e in story.of("removing") if e.actor == birth.actor]
    return event.error == "RuntimeError" and min(removed, default=math.inf) < event.t


def _disturbed(story: Story, group: str, start: float, end: float) -> bool:
    """Whether a member died or left, or a cable or an agent was disturbed, in a time.
    A group feels a cut that is too short to be felt by actors."""
    members = {story.births[event.who].actor for event in story.of("joining")}
    if story.explained(sorted(members), start - SLACK_S, end):
        return True
    gone = (e.t for e in story.of("left-group") if e.group == group)
    ill = (fault.t for fault in story.of("fault") if fault.kind in _DISTURBING)
    return any(start - SLACK_S <= t <= end for t in (*gone, *ill))


_DISTURBING = frozenset({"cut", "swallow", "loss", "stop", "kill-host"})


@rule("hangs")
def operations_and_rounds_go_on(story: Story) -> Iterator[Violation]:
    """No operation takes longer than any fault may delay it, and each has an end if
    its process ends in good order. The same holds for joining, and for rounds."""
    for one in _operations(story):
        begins, finished = one.begins, one.finished
        until = finished.t if finished else _alive_until(story, begins.who)
        if until - begins.t > HUNG_S:
            text = f"{one} took {until - begins.t:.1f} s"
            yield Violation(text, one.events)
        elif finished is None and begins.who in story.over:
            yield Violation(f"{one} never ended", one.events)
    before: dict[tuple[str, str], Event] = {}
    for event in story.of("joining", "joined", "view", "step", "left-group"):
        last = before.get((event.who, event.group))
        waits = last is not None and last.what != "left-group"
        if waits and last is not None and event.t - last.t > HUNG_S:
            text = f"{event.who} waited {event.t - last.t:.1f} s in {event.group!r}"
            yield Violation(text, [last, event])
        before[event.who, event.group] = event


def _alive_until(story: Story, who: str) -> float:
    """How long a process has certainly lived."""
    birth = story.births[who]
    troubles = [t.start for t in story.troubles(birth.actor) if t.end > birth.t]
    return min([story.session_over, story.events[-1].t, *troubles])


# -- Accumulators: one model, and each contribution once in its updates ------------


@rule("one model")
def equal_versions_are_equal(story: Story) -> Iterator[Violation]:
    """All members that have a version of a model have the same one, without healing."""
    first: dict[tuple[str, int], Event] = {}
    for event in story.of("step"):
        other = first.setdefault((event.model, event.version), event)
        if other.digest != event.digest:
            text = f"version {event.version} of model {event.model} is there twice"
            yield Violation(text, [other, event])
        if event.healed:
            yield Violation(f"{event.who} had to be healed", [event])


@rule("updates")
def an_update_has_each_contribution_once(story: Story) -> Iterator[Violation]:
    """An update is the sum of whole contributions, and has as many samples as these
    have, a batch at least, or exactly; it is the same for all; and no contribution is
    in two of them."""
    added = {event.token: event for event in story.of("adds")}
    sums: dict[tuple[str, int], Event] = {}
    used: dict[int, Event] = {}
    for event in story.of("updates"):
        if not event.total:
            continue  # a step that was made again: its sum is not known
        first = sums.setdefault((event.model, event.version), event)
        if (event.got, event.total) != (first.got, first.total):
            text = f"update {event.version} of model {event.model} differs"
            yield Violation(text, [first, event])
        parts = [added.get(token) for token in event.got.values()]
        places = [int(place) for place in event.got]
        if [part and part.at for part in parts] != places:
            text = f"update {event.version} has what nobody added"
            yield Violation(text, [event])
        elif sum(part.samples for part in parts if part) != event.total:
            text = f"update {event.version} has {event.total} samples"
            yield Violation(text, [event, *filter(None, parts)])
        elif not event.least <= event.total <= (event.facts.get("most") or event.total):
            text = f"update {event.version} has {event.total} samples, not a batch"
            yield Violation(text, [event])
        for token in event.got.values():
            other = used.setdefault(token, event)
            if (other.model, other.version) != (event.model, event.version):
                text = f"contribution {token} is in two updates"
                yield Violation(text, [other, event])


@rule("kept contributions")
def no_contribution_is_lost(story: Story) -> Iterator[Violation]:
    """A contribution is in an update once a later one of the same member is,
    whoever comes or goes; unless it got the state of others in between. In exact
    batches a later one may come first."""
    used = {token for event in story.of("updates") for token in event.got.values()}
    waiting: dict[tuple[str, str], list[Event]] = defaultdict(list)
    dropped: dict[tuple[str, str], Any] = {}
    for event in story.of("adds", "step", "joined"):
        loop = event.who, event.group
        own = waiting[loop]
        if event.what == "adds":
            if event.token in used:
                for lost in own:
                    text = f"contribution {lost.token} is in no update"
                    yield Violation(text, [lost, event])
                own.clear()
            elif not event.exact:
                own.append(event)
        else:
            now = event.facts.get("received"), event.facts.get("stale")
            if dropped.get(loop) != now:
                own.clear()
            dropped[loop] = now
