# SPDX-License-Identifier: MIT
"""Broken promises: each function breaks one in a correct history.

`BREAKS` has them all, with the rule that must find each.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from tests.chaos.edited import Edited, Unsuitable
from tests.chaos.history import Event

Break = Callable[[Edited], None]
BREAKS: list[tuple[str, Break]] = []


def breaks(rule: str) -> Callable[[Break], Break]:
    """Say which rule a function breaks."""

    def register(function: Break) -> Break:
        BREAKS.append((rule, function))
        return function

    return register


# -- calls -----------------------------------------------------------------


@breaks("ended once")
def a_call_never_ends(it: Edited) -> None:
    it.drop(it.pick("ended"))


@breaks("ended once")
def a_call_ends_twice(it: Edited) -> None:
    end = it.pick("ended")
    it.after(end, "ended", **end.facts)


@breaks("ended once")
def a_tell_has_an_end(it: Edited) -> None:
    sent = it.pick("sent", tell=True)
    it.after(sent, "ended", call=sent.call, how="value", value=sent.call)


@breaks("at most once")
def a_call_runs_twice_in_one_process(it: Edited) -> None:
    run = it.pick("ran")
    it.after(run, "ran", **run.facts)


@breaks("at most once")
def a_call_without_retries_runs_in_two_processes(it: Edited) -> None:
    birth = it.pick("born", incarnation=1)
    for run in it.find("ran"):
        first = run.who.endswith(".0") and it.sent(run.call).to == birth.actor
        if first and not it.sent(run.call).retries:
            it.after(birth, "ran", **run.facts)
            return
    raise Unsuitable


@breaks("at most once")
def a_call_runs_in_another_actor(it: Edited) -> None:
    run = it.pick("ran")
    others = [one.who for one in it.find("ran") if one.who[:2] != run.who[:2]]
    it.drop(run)
    it.add(run._replace(who=it.chance.choice(others)))


@breaks("order")
def two_calls_change_places(it: Edited) -> None:
    for first, second in it.pairs("ran"):
        one, two = it.sent(first.call), it.sent(second.call)
        if first.who == second.who and one.client == two.client and one.t < two.t:
            it.change(first, t=second.t + 1e-6)
            return
    raise Unsuitable


@breaks("delivered")
def a_call_has_a_value_and_did_not_run(it: Edited) -> None:
    it.drop(*it.find("ran", call=it.pick("ended", how="value").call))


@breaks("delivered")
def a_call_has_an_exception_and_did_not_run(it: Edited) -> None:
    it.drop(*it.find("ran", call=it.pick("ended", error="ValueError").call))


@breaks("delivered")
def a_call_that_is_said_not_to_be_delivered_has_run(it: Edited) -> None:
    end = it.pick("ended", delivered=False)
    sent = it.sent(end.call)
    who = it.find("born", actor=sent.to)[0].who
    it.after(sent, "ran", who, call=end.call, method=sent.method)


@breaks("delivered")
def a_call_that_is_said_not_to_be_delivered_runs_later(it: Edited) -> None:
    end = it.pick("ended", delivered=False)
    sent = it.sent(end.call)
    for birth in it.find("born", actor=sent.to):
        if birth.t > end.t:
            it.after(birth, "ran", call=end.call, method=sent.method)
            return
    raise Unsuitable


@breaks("delivered")
def a_call_that_is_said_to_be_delivered_never_ran(it: Edited) -> None:
    end = it.peaceful_end()
    it.drop(*it.find("ran", call=end.call))
    it.change(end, how="error", error="CallTimeout", delivered=True)


@breaks("errors")
def a_call_fails_though_nobody_had_died(it: Edited) -> None:
    it.change(it.peaceful_end(), how="error", error="ActorDied", delivered=None)


@breaks("errors")
def a_call_ends_with_a_bug_of_ours(it: Edited) -> None:
    it.change(it.pick("ended"), how="error", error="InternalError")


@breaks("errors")
def a_call_is_cancelled_by_nobody(it: Edited) -> None:
    it.change(it.pick("ended"), how="error", error="Cancelled", delivered=None)


@breaks("errors")
def a_call_hangs_until_its_long_deadline(it: Edited) -> None:
    it.change(it.pick("ended"), how="error", error="CallTimeout", delivered=None)


@breaks("deadlines")
def a_call_ends_long_after_its_deadline(it: Edited) -> None:
    sent = it.sent(it.pick("ended").call)
    it.change(sent, t=sent.t - 100.0)


@breaks("tells")
def a_tell_gets_lost(it: Edited) -> None:
    faults = [fault.t for fault in it.find("fault")]
    sent = {event.call: event for event in it.find("sent")}
    for first, second in it.pairs("ran"):
        one, two = sent[first.call], sent[second.call]
        same = (one.to, one.client) == (two.to, two.client) and one.t < two.t
        if same and one.tell and not any(one.t - 20.0 < t < second.t for t in faults):
            it.drop(first)
            return
    raise Unsuitable


# -- values ----------------------------------------------------------------


@breaks("values")
def a_caller_gets_another_value_than_was_returned(it: Edited) -> None:
    it.change(it.pick("ended", how="value"), value="another one")


@breaks("values")
def a_method_returns_a_wrong_value(it: Edited) -> None:
    sent = it.sent(it.pick("ended", how="value").call)
    it.change(sent, expect="the right one")


@breaks("values")
def a_method_gets_a_wrong_argument(it: Edited) -> None:
    calls = [run for run in it.find("ran") if "got" in run.facts]
    it.change(it.chance.choice(calls), got="another one")


@breaks("streams")
def a_stream_lacks_an_item(it: Edited) -> None:
    it.drop(it.pick("item"))


@breaks("streams")
def a_stream_has_an_item_twice(it: Edited) -> None:
    item = it.pick("item")
    it.after(item, "item", **item.facts)


@breaks("streams")
def a_stream_has_a_wrong_item(it: Edited) -> None:
    it.change(it.pick("item"), value=1000)


@breaks("counts")
def a_count_is_given_twice(it: Edited) -> None:
    ends = _ends_of_counts(it)
    for before, end in ends:
        it.change(end, value=before.value)
        return
    raise Unsuitable


@breaks("counts")
def a_count_goes_back(it: Edited) -> None:
    for before, end in _ends_of_counts(it):
        if it.sent(end.call).t > before.t:
            it.change(before, value=end.value)
            it.change(end, value=before.value)
            return
    raise Unsuitable


def _ends_of_counts(it: Edited) -> list[tuple[Event, Event]]:
    """Pairs of the same actor's, in the order of time."""
    counts = {one.call: one.to for one in it.find("sent", method="count")}
    ends = [end for end in it.find("ended", how="value") if end.call in counts]
    return [
        (before, end)
        for before, end in itertools.combinations(ends, 2)
        if counts[before.call] == counts[end.call]
    ]


@breaks("refs")
def a_ref_has_another_value(it: Edited) -> None:
    it.change(it.pick("read", how="value"), value="another one")


@breaks("refs")
def a_ref_is_lost_though_its_maker_lives(it: Edited) -> None:
    faults = [fault.t for fault in it.find("fault")]
    for read in it.find("read", how="value"):
        made = it.find("made", ref=read.ref)[0]
        if not any(made.t - 20.0 < t < read.t for t in faults):
            it.change(read, how="error", error="ActorDied")
            return
    raise Unsuitable


# -- names and deaths ------------------------------------------------------


@breaks("unique names")
def two_actors_have_a_name_at_a_time(it: Edited) -> None:
    named = it.find("spawned", name="claim")
    for event in named:
        acts = [one for one in it.events if one.who == f"{event.actor[3:]}.0"]
        later = [one for one in it.find("ran") if one.t > event.t]
        if len(acts) > 1 and acts[-1].what == "ran" and later:
            who = "driver"
            facts = {"actor": "id-other", "name": "claim", "owned": True}
            it.add(Event(acts[-1].t - 1e-7, who, "spawned", facts))
            it.add(Event(acts[-1].t + 1e-7, "other.0", "born", _birth("other")))
            return
    raise Unsuitable


def _birth(name: str) -> dict[str, object]:
    return {
        "role": name,
        "actor": f"id-{name}",
        "incarnation": 0,
        "pid": 99,
        "host": "",
    }


@breaks("lookups")
def a_lookup_finds_nobody_though_there_is_a_holder(it: Edited) -> None:
    for found in it.find("found"):
        acts = [one.t for one in it.events if one.who == f"{found.actor[3:]}.0"]
        if found.actor and found.t < max(acts):
            it.change(found, actor="")
            return
    raise Unsuitable


@breaks("lookups")
def a_lookup_finds_one_that_was_gone(it: Edited) -> None:
    for removed in it.find("removed"):
        for found in it.find("found"):
            name = it.find("spawned", actor=removed.actor)[0].name
            if found.t > removed.t + 0.1 and found.name == name:
                it.change(found, actor=removed.actor)
                return
    raise Unsuitable


@breaks("notices")
def a_death_is_noticed_twice(it: Edited) -> None:
    seen = it.pick("seen", kind="Died")
    it.after(seen, "seen", **seen.facts)


@breaks("notices")
def a_life_goes_on_after_its_last_event(it: Edited) -> None:
    seen = it.pick("seen", kind="Stopped")
    it.after(seen, "seen", **{**seen.facts, "kind": "Started"})


@breaks("missing notices")
def a_watcher_misses_a_death(it: Edited) -> None:
    for seen in it.find("seen", kind="Died"):
        start = it.find("watching", watch=seen.watch)[0]
        if seen.incarnation and it.find("unwatched", watch=start.watch):
            it.drop(seen)
            return
    raise Unsuitable


@breaks("missing notices")
def a_watcher_never_sees_the_end(it: Edited) -> None:
    it.drop(it.pick("unwatched"))


@breaks("false deaths")
def a_process_is_replaced_though_nothing_had_happened(it: Edited) -> None:
    fault = it.pick("fault", target="a0")
    others = [one for one in it.find("fault", target="a0") if one != fault]
    if any(abs(one.t - fault.t) < 30.0 for one in others):
        raise Unsuitable
    it.drop(fault)


@breaks("the dead")
def a_process_acts_after_its_death_was_noticed(it: Edited) -> None:
    seen = it.pick("seen", kind="Died")
    who = f"{seen.actor[3:]}.{seen.incarnation}"
    it.after(seen, "made", who, ref="late", value=1)


@breaks("the dead")
def a_process_acts_after_its_successor_is_born(it: Edited) -> None:
    birth = it.pick("born", incarnation=2)
    it.after(birth, "made", birth.who.replace(".2", ".1"), ref="late", value=1)


# -- the rest --------------------------------------------------------------


@breaks("leftovers")
def a_file_is_left(it: Edited) -> None:
    it.add(it.events[-1]._replace(what="left", who="runner", facts={"text": "file"}))


@breaks("participants")
def a_participant_acts_after_its_end(it: Edited) -> None:
    over = it.pick("over")
    it.after(over, "made", ref="late", value=1)


@breaks("participants")
def an_incarnation_has_two_processes(it: Edited) -> None:
    birth = it.pick("born", role="a0")
    it.after(birth, "born", f"{birth.who}-again", **birth.facts)


@breaks("participants")
def a_call_was_sent_by_nobody(it: Edited) -> None:
    it.drop(it.sent(it.pick("ended").call))
