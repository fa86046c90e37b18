# SPDX-License-Identifier: MIT
"""The rules that a history must keep: each a function from a story to violations.

`RULES` has them by the names under which violations are reported.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.chaos.history import Event
from tests.chaos.story import SLACK_S, Birth, Call, Story, value_of

#: Errors that a death or an end of the callee explains.
OF_DEATHS = frozenset({"ActorDied", "ActorRestarted", "ActorUnavailable"})
#: Exceptions that the workload's own methods raise.
OF_METHODS = frozenset({"ValueError"})
#: A call must take no longer than its timeout and this, on a busy machine and when
#: its caller was stopped for a while.
LATE_S = 20.0
#: A call with a timeout of at least this never needs so long: it hung.
LONG_S = 30.0


class Violation(NamedTuple):
    """A broken rule, in a sentence, with the events that show it."""

    text: str
    events: list[Event]
    rule: str = ""  # `check` fills it in


Rule = Callable[[Story], Iterator[Violation]]
RULES: dict[str, Rule] = {}


def rule(name: str) -> Callable[[Rule], Rule]:
    """Report what a function finds under this name."""

    def register(function: Rule) -> Rule:
        RULES[name] = function
        return function

    return register


def _of(call: Call, text: str) -> Violation:
    return Violation(f"{call} {text}", call.events())


# -- calls: they end once, run at most once, in order, and say the truth -----------


@rule("ended once")
def every_call_ends_once(story: Story) -> Iterator[Violation]:
    """A call of a caller that ended in good order has one end; others at most one."""
    for call in story.calls.values():
        ends = len(call.ended)
        if call.tell:
            if ends:
                yield _of(call, "is a tell and has an end")
        elif ends > 1:
            yield _of(call, f"ended {ends} times")
        elif not ends and call.sent.who in story.over:
            yield _of(call, "never ended")


@rule("at most once")
def none_runs_too_often(story: Story) -> Iterator[Violation]:
    """A call runs at most once, and once more for each retry, in a new process each."""
    for call in story.calls.values():
        births = [story.births.get(event.who) for event in call.ran]
        if len(call.ran) > 1 + call.retries:
            times = f"{len(call.ran)} times with {call.retries} retries"
            yield _of(call, f"ran {times}")
        elif len({event.who for event in call.ran}) < len(call.ran):
            yield _of(call, "ran twice in one process")
        elif any(birth is None or birth.actor != call.sent.to for birth in births):
            yield _of(call, "ran in another actor")


@rule("order")
def calls_start_in_the_order_sent(story: Story) -> Iterator[Violation]:
    """In each process of the callee, the calls of one client start as it sent them."""
    place = {event.call: n for n, event in enumerate(story.of("sent"))}
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


@rule("delivered")
def errors_say_rightly_whether_it_ran(story: Story) -> Iterator[Violation]:
    """A value, and the method's own exception, come of a run. delivered=False: there
    was none, and there will be none. delivered=True: there was one."""
    for call in story.calls.values():
        for end in call.ended:
            if (text := _untruth(story, call, end)) is not None:
                yield _of(call, text)


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


@rule("errors")
def errors_are_named_and_have_a_reason(story: Story) -> Iterator[Violation]:
    """Errors are those of the methods and those of deaths, and of no death without a
    fault; time-outs and cancellations are the caller's own."""
    for call in story.calls.values():
        for end in call.ended:
            if end.how == "error" and (text := _unreasonable(story, call, end)):
                yield _of(call, text)


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
    hosts = [story.host_of(sent.who)]
    others = [sent.to, *sent.facts.get("via", ())]
    if story.explained(others, sent.t, end.t) or story.cut_off(hosts, sent.t, end.t):
        return None
    return f"ended with {end.error}, and nobody had died"


@rule("deadlines")
def calls_end_within_their_deadlines(story: Story) -> Iterator[Violation]:
    """A call with a deadline has an end soon after it."""
    for call in story.calls.values():
        for end in call.ended:
            late = end.t - call.sent.t - call.timeout
            if late > LATE_S:
                yield _of(call, f"ended {late:.1f} s after its deadline")


@rule("tells")
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


# -- values: results, items of streams, counters that are restored, Refs -----------


@rule("values")
def values_are_right(story: Story) -> Iterator[Violation]:
    """A caller gets what a run of its call returned, which is what it should be; and
    the method got the arguments that were sent."""
    for call in story.calls.values():
        returned = [value_of(event) for event in call.done]
        for value in [value_of(end) for end in call.ended if end.how == "value"]:
            if value not in returned:
                yield _of(call, f"gave {value!r}, and its runs returned {returned!r}")
            elif "expect" in call.sent.facts and value != call.sent.expect:
                yield _of(call, f"gave {value!r} instead of {call.sent.expect!r}")
        expected = call.sent.facts.get("argument")
        for run in call.ran:
            if "got" in run.facts and run.got != expected:
                yield _of(call, f"got {run.got!r} for an argument, not {expected!r}")


@rule("streams")
def streams_have_every_item_in_order(story: Story) -> Iterator[Violation]:
    """Items come in order, each once and right; all of them if the end is a value."""
    for call in story.calls.values():
        if "items" not in call.sent.facts:
            continue
        numbers = [event.n for event in call.items]
        if numbers != list(range(len(numbers))):
            yield _of(call, f"gave items {numbers}")
        elif any(value_of(event) != event.n for event in call.items):
            yield _of(call, "gave wrong items")
        ended = any(end.how == "value" for end in call.ended)
        if ended and len(numbers) != call.sent.items:
            of_all = f"{len(numbers)} of {call.sent.items} items"
            yield _of(call, f"ended well after {of_all}")
        elif any(call.ended[0].t < event.t for event in call.items if call.ended):
            yield _of(call, "gave items after its end")


@rule("counts")
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


@rule("refs")
def refs_have_their_values(story: Story) -> Iterator[Violation]:
    """A reader of a Ref gets its value, or the death of the process that made it."""
    made = {event.ref: event for event in story.of("made")}
    begun = {event.read: event for event in story.of("reading")}
    for end in story.of("read"):
        source, start = made.get(end.ref), begun.pop(end.read, None)
        if source is None or start is None:
            yield Violation(f"Ref {end.ref} was read out of nothing", [end])
        elif end.how == "value":
            if end.value != source.value:
                text = f"Ref {end.ref} gave {end.value!r} instead of {source.value!r}"
                yield Violation(text, [source, start, end])
        elif not _may_be_lost(story, source, end):
            text = f"Ref {end.ref} gave {end.error}, and its maker had not died"
            yield Violation(text, [source, start, end])


def _may_be_lost(story: Story, source: Event, end: Event) -> bool:
    if end.error not in OF_DEATHS:
        return False
    hosts = [story.host_of(source.who), story.host_of(end.who)]
    maker = story.births.get(source.who)
    troubles = story.troubles(maker.actor) if maker and maker.actor else []
    # A process that has died stays dead: its Refs are lost from then on.
    died = any(source.t <= t.end and t.start <= end.t for t in troubles)
    return died or story.session_over <= end.t or story.cut_off(hosts, source.t, end.t)


# -- names: one holder at any time, and look-ups find that one ---------------------


class Holder(NamedTuple):
    """An actor that had a name: from its `spawn` on until it ends. It certainly still
    holds it when one of its processes notes something, before its end has begun."""

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


@rule("unique names")
def a_name_has_one_holder(story: Story) -> Iterator[Violation]:
    """The times in which two actors certainly hold a name do not overlap."""
    for name, all_of_it in holders(story).items():
        certain = [one for one in all_of_it if one.since < one.until]
        latest: Holder | None = None
        for one in sorted(certain, key=lambda one: one.since):
            if latest is not None and one.since < latest.until:
                text = f"{one.actor} and {latest.actor} held the name {name!r} together"
                yield Violation(text, [latest.spawned, one.spawned])
            if latest is None or one.until > latest.until:
                latest = one


@rule("lookups")
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


# -- deaths: noticed once by everyone who watches, with reason, and for good -------

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


@rule("notices")
def notices_come_once_and_in_order(story: Story) -> Iterator[Violation]:
    """Each watcher sees a life: started, died, restarted, died, …, and one end."""
    for start, seen in _watches(story):
        for before, event in itertools.pairwise(seen):
            step = (event.kind, event.incarnation - before.incarnation)
            if step not in _NEXT[before.kind]:
                text = f"{start.watch} saw {event.kind} {event.incarnation}"
                then = f"after {before.kind} {before.incarnation}"
                yield Violation(f"{text} {then}", [start, before, event])


@rule("missing notices")
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


@rule("false deaths")
def deaths_have_a_reason(story: Story) -> Iterator[Violation]:
    """A death that was noticed, and each process after the first one of an actor, has
    a fault before it that ends processes."""
    for event in story.of("seen"):
        if event.kind == "Died" and not story.explained([event.actor], event.t):
            text = f"{event.actor} is said to have died, and nothing had happened to it"
            yield Violation(text, [event])
    for actor, births in story.lives.items():
        for birth in births:
            if birth.incarnation and not story.explained([actor], birth.t):
                text = f"{birth.who} replaces a process to which nothing had happened"
                yield Violation(text, [])


@rule("the dead")
def the_dead_do_not_act(story: Story) -> Iterator[Violation]:
    """Once a death was noticed, or a later process was born, a process does nothing.

    One on a host that was cut off may go on until that host's own patience ends.
    """
    dead: dict[str, float] = {}
    for event in story.of("seen"):
        if event.kind in ("Died", "Stopped"):
            for birth in story.lives.get(event.actor, ()):
                if birth.incarnation <= event.incarnation:
                    dead[birth.who] = min(event.t, dead.get(birth.who, math.inf))
    for births in story.lives.values():
        for birth, later in itertools.pairwise(births):
            dead[birth.who] = min(later.t, dead.get(birth.who, math.inf))
    for who, since in dead.items():
        if story.last[who] > since + _leave(story, story.births[who], since):
            acts = [one for one in story.events if one.who == who and one.t > since]
            yield Violation(f"{who} acted after its death at {since:.6f}", acts)


def _leave(story: Story, birth: Birth, t: float) -> float:
    """For how long a process may still act: not at all on a host that is reachable."""
    return SLACK_S if story.cut_off([birth.host], birth.t, t) else 0.0


# -- the whole: nothing is left, and the histories make sense ----------------------


@rule("leftovers")
def nothing_is_left_behind(story: Story) -> Iterator[Violation]:
    """No process, socket, file or memory of a session is there after its end."""
    for event in story.of("left"):
        yield Violation(f"left behind: {event.facts['text']}", [event])


@rule("participants")
def histories_make_sense(story: Story) -> Iterator[Violation]:
    """Participants are born first and end last, and know the calls that they end. An
    incarnation has one process, and a call is sent once.

    Of a call whose caller was killed while it noted it, the note may be missing.
    """
    known: set[str] = set()
    ended: set[str] = set()
    for event in story.events:
        if event.who not in known and event.what != "born":
            yield Violation(f"{event.who} acted before its birth", [event])
        if event.who in ended:
            yield Violation(f"{event.who} acted after its end", [event])
        known.add(event.who)
        if event.what == "over":
            ended.add(event.who)
    born = [birth for birth in story.of("born") if birth.actor]
    ids = [f"call {event.call}" for event in story.of("sent")]
    ids += [f"incarnation {birth.incarnation} of {birth.actor}" for birth in born]
    for which, number in Counter(ids).items():
        if number > 1:
            yield Violation(f"{which} is there {number} times", [])
    for event in story.strays:
        yield Violation(f"call {event.call} was sent by nobody", [event])
