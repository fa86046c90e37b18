# SPDX-License-Identifier: MIT
"""Rules of calls: they end once, run at most once, in order, and say the truth."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.chaos.history import Event
from tests.chaos.story import Call, Story
from tests.chaos.violation import Violation

#: Errors that a death or an end of the callee explains.
OF_DEATHS = frozenset({"ActorDied", "ActorRestarted", "ActorUnavailable"})
#: Exceptions that the workload's own methods raise.
OF_METHODS = frozenset({"ValueError"})
#: A call must take no longer than its timeout and this, on a busy machine and when
#: its caller was stopped for a while.
LATE_S = 20.0
#: A call with a timeout of at least this never needs so long: it hung.
LONG_S = 30.0


def every_call_ends_once(story: Story) -> Iterator[Violation]:
    """A call of a caller that ended in good order has one end; others at most one."""
    for call in story.calls.values():
        ends = len(call.ended)
        if call.tell:
            if ends:
                yield Violation(f"{call} is a tell and has an end", call.events())
        elif ends > 1:
            yield Violation(f"{call} ended {ends} times", call.events())
        elif not ends and call.sent.who in story.over:
            yield Violation(f"{call} never ended", call.events())


def none_runs_too_often(story: Story) -> Iterator[Violation]:
    """A call runs at most once, and once more for each retry, in a new process each."""
    for call in story.calls.values():
        runs = Counter(event.who for event in call.ran)
        if len(call.ran) > 1 + call.retries:
            text = f"{call} ran {len(call.ran)} times with {call.retries} retries"
            yield Violation(text, call.events())
        elif any(number > 1 for number in runs.values()):
            yield Violation(f"{call} ran twice in one process", call.events())
        elif (strange := _strangers(story, call)) is not None:
            yield Violation(f"{call} ran in another actor", [call.sent, strange])


def _strangers(story: Story, call: Call) -> Event | None:
    for event in call.ran:
        birth = story.births.get(event.who)
        if birth is None or birth.actor != call.sent.to:
            return event
    return None


def calls_start_in_the_order_sent(story: Story) -> Iterator[Violation]:
    """In each process of the callee, the calls of one client start as it sent them."""
    place: dict[str, int] = {}
    sent: Counter[tuple[str, str, str]] = Counter()
    for event in story.of("sent"):
        pair = (event.who, event.client, event.to)
        sent[pair] += 1
        place[event.call] = sent[pair]
    latest: dict[tuple[str, str, str], Event] = {}
    for event in story.of("ran"):
        call = story.calls.get(event.call)
        if call is None:
            continue
        pair = (call.sent.who, call.sent.client, event.who)
        before = latest.get(pair)
        if before is not None and place[before.call] > place[event.call]:
            text = f"{call} started after call {before.call}, which was sent later"
            other = story.calls[before.call].sent
            yield Violation(text, [call.sent, other, before, event])
        else:
            latest[pair] = event


def errors_say_rightly_whether_it_ran(story: Story) -> Iterator[Violation]:
    """A value, and the method's own exception, come of a run. delivered=False: there
    was none, and there will be none. delivered=True: there was one."""
    for call in story.calls.values():
        for end in call.ended:
            if (text := _untruth(story, call, end)) is not None:
                yield Violation(f"{call} {text}", call.events())


def _untruth(story: Story, call: Call, end: Event) -> str | None:
    ran = len(call.ran)
    if end.how == "value" or end.error in OF_METHODS:
        return None if ran else "has a result and never ran"
    delivered = end.facts.get("delivered")
    if delivered is False and ran:
        return f"ended with {end.error}, delivered=False, and ran"
    died = story.explained([call.sent.to], call.sent.t, end.t)
    if delivered is True and not ran and not died:
        return f"ended with {end.error}, delivered=True, and never ran"
    return None


def errors_are_named_and_have_a_reason(story: Story) -> Iterator[Violation]:
    """Errors are those of the methods and those of deaths, and of no death without a
    fault; time-outs and cancellations are the caller's own."""
    for call in story.calls.values():
        for end in call.ended:
            if end.how == "error" and (text := _unreasonable(story, call, end)):
                yield Violation(f"{call} {text}", call.events())


def _unreasonable(story: Story, call: Call, end: Event) -> str | None:
    sent = call.sent
    if end.error in OF_METHODS:
        return None if sent.method == "fail" else f"ended with {end.error}"
    if end.error == "Cancelled":
        return None if sent.facts.get("cancels") else "was cancelled by nobody"
    if end.error == "CallTimeout":
        hung = call.timeout >= LONG_S
        return f"was still not over after {call.timeout} s" if hung else None
    if end.error not in OF_DEATHS:
        return f"ended with {end.error}"
    if sent.facts.get("lost"):
        return None  # the caller knew it to be dead
    hosts = [story.host_of(sent.who)]
    others = [sent.to, *sent.facts.get("via", ())]
    if story.explained(others, sent.t, end.t) or story.cut_off(hosts, sent.t, end.t):
        return None
    return f"ended with {end.error}, and nobody had died"


def calls_end_within_their_deadlines(story: Story) -> Iterator[Violation]:
    """A call with a deadline has an end soon after it."""
    for call in story.calls.values():
        for end in call.ended:
            late = end.t - call.sent.t - call.timeout
            if late > LATE_S:
                text = f"{call} ended {late:.1f} s after its deadline"
                yield Violation(text, call.events())


def tells_run_unless_their_actor_died(story: Story) -> Iterator[Violation]:
    """A tell has run when a later call of the same client runs, unless its actor had
    trouble in between."""
    waiting: dict[tuple[str, str, str], list[Call]] = defaultdict(list)
    for event in story.of("sent", "ran"):
        call = story.calls.get(event.call)
        if call is None:
            continue
        pair = (call.sent.who, call.sent.client, call.sent.to)
        if event.what == "sent":
            if call.tell and not call.ran:
                waiting[pair].append(call)
            continue
        for told in waiting.pop(pair, ()):
            if told.sent.t > call.sent.t:
                waiting[pair].append(told)
            elif not story.explained([told.sent.to], told.sent.t, event.t):
                yield Violation(f"{told} was a tell, and never ran", [told.sent, event])
