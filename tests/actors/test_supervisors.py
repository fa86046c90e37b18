# SPDX-License-Identifier: MIT
"""Supervisors over real processes. For the strategies see tests/host/test_children."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from mooactor.process.supervision import Strategy
from tests.actors.counter import Remembers
from tests.actors.keeper import Keeper, number_in, value
from tests.actors.members import Member, notes
from tests.conftest import eventually

MANY = 1000  # restarts, where their number does not matter


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def members(n: int, log: Path, **kwargs: Any) -> list[moo.Child[Member]]:
    return [moo.child(Member, str(i), log, **kwargs) for i in range(n)]


def wait_until_started(supervisor: Any) -> None:
    with moo.monitor(supervisor) as events:
        assert isinstance(next(events), moo.Started | moo.Restarted)


def pid_of(handle: Any) -> int:
    return int(handle.pid.options(retries=MANY)())


def has_another_pid(handle: Any, before: int) -> bool:
    return eventually(lambda: pid_of(handle) != before)


@pytest.fixture
def team(spawn: Any, log: Path) -> Callable[..., Any]:
    """A supervisor whose children run, and their handles."""

    def make(n: int, **rules: Any) -> Any:
        children = members(n, log)
        supervisor = spawn(moo.Supervisor, children, **{"max": MANY, **rules})
        wait_until_started(supervisor)
        return supervisor, [supervisor.child(one) for one in children]

    return make


@moo.actor
class Meets:
    """Its constructor returns when so many have begun theirs."""

    def __init__(self, log: Path, count: int) -> None:
        self.log, self.count = log, count
        with log.open("a") as file:
            file.write("+\n")
        assert eventually(lambda: len(notes(log)) >= count)

    def ping(self) -> str:
        return "pong"

    def on_stop(self) -> None:
        with self.log.open("a") as file:
            file.write("-\n")
        assert eventually(lambda: notes(self.log).count("-") >= self.count)


# -- starting --------------------------------------------------------------


def test_children_start_in_their_order(team: Any, log: Path) -> None:
    team(5)
    assert notes(log) == ["+0", "+1", "+2", "+3", "+4"]


def test_children_may_start_and_stop_all_at_once(spawn: Any, log: Path) -> None:
    children = [moo.child(Meets, log, 3).options(grace=60) for _ in range(3)]
    rules = {"in_order": False, "strategy": "one_for_all"}
    supervisor = spawn(moo.Supervisor, children, **rules)
    wait_until_started(supervisor)  # each constructor waits for the others
    assert [one.ping() for one in supervisor.children()] == ["pong"] * 3
    moo.stop(supervisor)  # and so does each end
    assert notes(log) == ["+"] * 3 + ["-"] * 3


def test_children_have_handles_and_names(spawn: Any, log: Path, session: Any) -> None:
    learner = moo.on(Member, name="learner").child("a", log)
    supervisor = spawn(moo.Supervisor, [learner, *members(1, log)])
    handle = supervisor.child(learner)
    assert handle.ping() == "a"
    assert supervisor.child("learner") == moo.lookup("learner") == handle
    assert [one.ping() for one in supervisor.children()] == ["a", "0"]
    with pytest.raises(moo.ActorUnavailable, match="no child 'nobody'"):
        supervisor.child("nobody")
    (info,) = [info for info in moo.actors() if info.name == "learner"]
    assert info.owner == "Supervisor"


def test_a_child_whose_constructor_dies_is_tried_again(spawn: Any, log: Path) -> None:
    fragile = moo.child(Member, "0", log, fails=2)
    supervisor = spawn(moo.Supervisor, [fragile, moo.child(Member, "last", log)])
    wait_until_started(supervisor)
    assert notes(log) == ["+0", "+0", "+0", "+last"]


def test_a_supervisor_without_children_is_at_rest(spawn: Any) -> None:
    supervisor = spawn(moo.Supervisor)
    wait_until_started(supervisor)
    assert supervisor.children() == []


def test_another_child_may_be_added(team: Any, spawn: Any, log: Path) -> None:
    supervisor, (first,) = team(1, strategy="one_for_all")
    late = moo.on(Member, name="late").child("late", log)
    assert supervisor.add(late).ping() == "late"
    before = pid_of(supervisor.child(late))
    first.die.tell()
    assert has_another_pid(supervisor.child("late"), before)
    assert notes(log) == ["+0", "+late", "+0", "+late"]
    with pytest.raises(ValueError, match="has a child 'late' already"):
        supervisor.add(late)


# -- strategies ------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "restarted"),
    [
        ("one_for_one", [1]),
        ("one_for_all", [0, 1, 2, 3]),
        ("rest_for_one", [1, 2, 3]),
    ],
)
def test_the_strategy_decides_who_is_restarted(
    team: Any, log: Path, strategy: Strategy, restarted: list[int]
) -> None:
    _, handles = team(4, strategy=strategy)
    before = [pid_of(handle) for handle in handles]
    with pytest.raises(moo.ActorRestarted) as caught:
        handles[1].die(signal.SIGSEGV)
    assert caught.value.cause.signal == signal.SIGSEGV
    for i in restarted:
        assert has_another_pid(handles[i], before[i])
    for i in set(range(4)) - set(restarted):
        assert pid_of(handles[i]) == before[i]
    assert notes(log)[4:] == [f"+{i}" for i in restarted]


def test_calls_of_siblings_end_with_the_cause(team: Any) -> None:
    _, (first, second) = team(2, strategy="one_for_all")
    ref = second.sleep.remote(60)
    again = second.ping.options(retries=1).remote()
    first.die.tell(signal.SIGSEGV)
    error = ref.exception(timeout=20)
    assert isinstance(error, moo.ActorRestarted)
    assert error.cause.kind == "sibling" and error.cause.actor == "Member"
    assert error.cause.origin.signal == signal.SIGSEGV
    assert "restarted together with Member: killed by signal 11" in str(error)
    assert again.get(timeout=20) == "1"  # the caller's word: it may run twice


def test_children_get_their_last_snapshots(spawn: Any, log: Path) -> None:
    child = moo.child(Remembers)
    supervisor = spawn(
        moo.Supervisor, [child, *members(1, log)], strategy="one_for_all"
    )
    remembers, other = supervisor.children()
    assert [remembers.add(i) for i in range(3)] == [1, 2, 3]
    other.die.tell()
    assert eventually(
        lambda: [i.restarts for i in moo.actors() if i.label == "Remembers"] == [1]
    )
    assert remembers.all.options(retries=MANY)() == [0, 1, 2]


def test_what_children_own_is_gone_before_they_come_back(team: Any) -> None:
    _, (first, second) = team(2, strategy="one_for_all")
    recruited = second.recruit("recruit")
    assert recruited.ping() == "recruit"
    first.die.tell()
    error = recruited.sleep.remote(60).exception(timeout=20)
    assert isinstance(error, moo.ActorDied) and error.cause.kind == "owner"
    # the name is free
    again = second.recruit.options(retries=MANY)("recruit")
    assert again.ping() == "recruit" and again != recruited


def test_ten_deaths_at_once_are_one_restart(team: Any, log: Path) -> None:
    supervisor, handles = team(10, strategy="one_for_all", max=1)
    before = [pid_of(handle) for handle in handles]
    for pid in before:
        os.kill(pid, signal.SIGSTOP)  # none ends by itself meanwhile
    for pid in reversed(before):
        os.kill(pid, signal.SIGKILL)
    for handle, pid in zip(handles, before, strict=True):
        assert has_another_pid(handle, pid)
    assert notes(log)[10:] == [f"+{i}" for i in range(10)]
    assert len(supervisor.children()) == 10


def test_a_kill_during_a_restart_is_one_more_death(spawn: Any, log: Path) -> None:
    children = members(3, log)
    supervisor = spawn(moo.Supervisor, children, strategy="one_for_all", max=MANY)
    wait_until_started(supervisor)
    handles = supervisor.children()
    for _ in range(10):  # while some are on their way, and some wait for their turn
        handles[0].die.tell()
        handles[2].die.tell()
    for handle in handles:
        assert pid_of(handle)
    assert eventually(lambda: {i.state for i in moo.actors()} == {"running"})


# -- who stays away --------------------------------------------------------


@pytest.mark.parametrize("end", [moo.kill, moo.stop])
def test_a_child_that_is_ended_on_purpose_stays_away(team: Any, end: Any) -> None:
    _, (first, second) = team(2, strategy="one_for_all", max=0)
    before = pid_of(second)
    end(first)
    with pytest.raises(moo.ActorDied):
        first.ping()
    assert pid_of(second) == before


def test_a_child_may_end_well(spawn: Any, log: Path) -> None:
    one, other = (
        moo.child(Member, str(i), log).options(restart="on_failure") for i in range(2)
    )
    supervisor = spawn(moo.Supervisor, [one, other], max=1)
    with pytest.raises(moo.ActorDied) as caught:
        supervisor.child(one).leave(0)
    assert not isinstance(caught.value, moo.ActorRestarted)
    with pytest.raises(moo.ActorRestarted):
        supervisor.child(other).leave(1)
    assert supervisor.child(other).ping() == "1"


def test_the_death_of_a_child_that_never_restarts_concerns_nobody(
    spawn: Any, log: Path
) -> None:
    never = moo.child(Member, "never", log).options(restart="never")
    other = moo.child(Member, "other", log)
    supervisor = spawn(moo.Supervisor, [never, other], strategy="one_for_all", max=0)
    before = pid_of(supervisor.child(other))
    with pytest.raises(moo.ActorDied):
        supervisor.child(never).die()
    assert pid_of(supervisor.child(other)) == before


# -- giving up -------------------------------------------------------------


def test_too_many_restarts_end_the_supervisor_and_its_children(
    team: Any, log: Path
) -> None:
    supervisor, (first, second) = team(2, max=2)
    for _ in range(2):
        with pytest.raises(moo.ActorRestarted):
            first.die(signal.SIGSEGV)
    watched = moo.monitor(supervisor)
    with pytest.raises(moo.ActorDied) as caught:
        first.die(signal.SIGSEGV)
    assert not isinstance(caught.value, moo.ActorRestarted)
    assert caught.value.cause.signal == signal.SIGSEGV
    *_, last = watched
    assert isinstance(last, moo.Died) and last.cause.kind == "child"
    assert last.cause.actor == "Member" and last.cause.origin.signal == signal.SIGSEGV
    with pytest.raises(moo.ActorDied, match="its child Member died once too often"):
        supervisor.children()
    error = second.sleep.remote(60).exception(timeout=20)
    assert isinstance(error, moo.ActorDied) and error.cause.kind == "owner"


def test_the_next_supervisor_restarts_the_one_that_gave_up(
    spawn: Any, log: Path
) -> None:
    leaf = moo.on(Member, name="leaf").child("leaf", log)
    inner = moo.on(moo.Supervisor, name="inner").child([leaf], max=0)
    outer = spawn(moo.Supervisor, [inner, *members(1, log)], strategy="one_for_all")
    wait_until_started(outer)
    handle, sibling = moo.lookup("leaf"), outer.children()[1]
    before, other = pid_of(handle), pid_of(sibling)
    with pytest.raises(moo.ActorRestarted):  # not ActorDied: it will come back
        handle.die(signal.SIGSEGV)
    assert has_another_pid(handle, before) and has_another_pid(sibling, other)
    assert moo.lookup("leaf") == handle == outer.child(inner).child(leaf)
    assert notes(log) == ["+leaf", "+0"] * 2  # the order holds for the whole tree


def test_a_supervisor_may_have_a_restart_policy(spawn: Any, log: Path) -> None:
    policy = moo.on(moo.Supervisor, restart=moo.Restart(max=1))
    (child,) = members(1, log)
    supervisor = spawn(policy, [child], max=0)
    handle = supervisor.child(child)
    with pytest.raises(moo.ActorRestarted):
        handle.die()
    assert handle.ping() == "0"
    with pytest.raises(moo.ActorDied) as caught:
        handle.die()
    assert not isinstance(caught.value, moo.ActorRestarted)


# -- the supervisor's own end ----------------------------------------------


def pid_of_label(label: str) -> int | None:
    (pid,) = [info.pid for info in moo.actors() if info.label == label]
    return pid


def test_a_supervisor_that_is_killed_comes_back_with_its_children(
    spawn: Any, log: Path
) -> None:
    children = members(3, log)
    inner = moo.on(moo.Supervisor, name="inner").child(children)
    outer = spawn(moo.Supervisor, [inner])
    wait_until_started(outer)
    handles = [outer.child(inner).child(one) for one in children]
    before = [pid_of(handle) for handle in handles]
    ref = handles[0].sleep.remote(60)
    pid = pid_of_label("Supervisor:inner")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    error = ref.exception(timeout=20)
    assert isinstance(error, moo.ActorRestarted) and error.cause.kind == "owner"
    for handle, old in zip(handles, before, strict=True):
        assert has_another_pid(handle, old)
    assert notes(log)[3:] == ["+0", "+1", "+2"]
    assert outer.child(inner).children() == handles


def test_a_supervisor_that_comes_back_knows_who_stays_away(
    spawn: Any, log: Path
) -> None:
    names = ("stopped", "done", "stays")
    children = [moo.on(Member, name=name).child(name, log) for name in names]
    children[1] = children[1].options(restart="on_failure")
    inner = moo.on(moo.Supervisor, name="inner").child(children)
    outer = spawn(moo.Supervisor, [inner])
    wait_until_started(outer)
    stopped, done, stays = (moo.lookup(name) for name in names)
    moo.stop(stopped)
    done.leave.remote(0).exception(timeout=20)
    before, pid = pid_of(stays), pid_of_label("Supervisor:inner")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert has_another_pid(stays, before)
    assert moo.lookup("done") != done  # a new actor
    assert outer.child(inner).children() == [moo.lookup("done"), stays]
    with pytest.raises(moo.ActorUnavailable):
        moo.lookup("stopped")


def test_a_supervisor_that_hangs_delays_no_restart(team: Any) -> None:
    supervisor, (first, second) = team(2, strategy="one_for_all")
    before = [pid_of(first), pid_of(second)]
    pid = pid_of_label("Supervisor")
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    first.die.tell()
    assert has_another_pid(first, before[0]) and has_another_pid(second, before[1])
    os.kill(pid, signal.SIGCONT)
    assert supervisor.children() == [first, second]


def test_values_given_to_a_child_outlive_its_supervisor(spawn: Any) -> None:
    child = moo.on(Keeper, name="keeper").child(moo.put(value(7)))
    inner = moo.on(moo.Supervisor, name="inner").child([child])
    outer = spawn(moo.Supervisor, [inner])
    del child, inner  # and with them the Ref
    wait_until_started(outer)
    keeper = moo.lookup("keeper")
    for victim in ("Keeper:keeper", "Supervisor:inner", "Keeper:keeper"):
        assert number_in(keeper.hand_out.options(retries=MANY)("given")) == 7
        pid, before = pid_of_label(victim), pid_of(keeper)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert has_another_pid(keeper, before)
    assert number_in(keeper.hand_out.options(retries=MANY)("given")) == 7


def test_children_of_a_killed_supervisor_without_a_policy_end(team: Any) -> None:
    _, handles = team(3)
    pid = pid_of_label("Supervisor")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    for handle in handles:
        error = handle.sleep.remote(60).exception(timeout=20)
        assert isinstance(error, moo.ActorDied) and error.cause.kind == "owner"


def test_a_stopped_supervisor_stops_its_children_in_reverse_order(
    spawn: Any, log: Path
) -> None:
    inner = moo.on(moo.Supervisor).child([moo.child(Member, "inner", log)])
    children = [moo.child(Member, "a", log), inner, moo.child(Member, "b", log)]
    supervisor = spawn(moo.Supervisor, children)
    wait_until_started(supervisor)
    moo.stop(supervisor)
    assert notes(log) == ["+a", "+inner", "+b", "-b", "-inner", "-a"]


def test_a_child_that_does_not_stop_is_killed_after_its_grace(
    spawn: Any, log: Path
) -> None:
    stubborn = moo.child(Member, "stubborn", log).options(grace=0.05)
    supervisor = spawn(moo.Supervisor, [moo.child(Member, "a", log), stubborn])
    wait_until_started(supervisor)
    ref = supervisor.child(stubborn).hang.remote()
    assert eventually(lambda: "~stubborn" in notes(log))
    moo.stop(supervisor)
    assert isinstance(ref.exception(timeout=20), moo.ActorDied)
    assert notes(log) == ["+a", "+stubborn", "~stubborn", "-a"]


def test_a_stop_does_not_wait_for_a_back_off(spawn: Any, log: Path) -> None:
    (child,) = members(1, log)
    rules = {"backoff": 1000.0, "longest_backoff": 1000.0, "max": MANY}
    supervisor = spawn(moo.Supervisor, [child], **rules)
    handle = supervisor.child(child)
    with pytest.raises(moo.ActorRestarted):
        handle.die()
    waiting = handle.ping.remote()
    began = time.monotonic()
    moo.stop(supervisor)
    assert time.monotonic() - began < 500
    assert isinstance(waiting.exception(timeout=20), moo.ActorDied)


def test_a_supervisor_may_be_killed_during_a_back_off(spawn: Any, log: Path) -> None:
    (child,) = members(1, log)
    rules = {"backoff": 1000.0, "longest_backoff": 1000.0}
    supervisor = spawn(moo.Supervisor, [child], **rules)
    handle = supervisor.child(child)
    with pytest.raises(moo.ActorRestarted):
        handle.die()
    moo.kill(supervisor)
    with pytest.raises(moo.ActorDied):
        handle.ping()


@moo.actor
class Leads:
    def recruit(self, children: list[Any]) -> Any:
        return moo.spawn(moo.Supervisor, children, max=MANY)


def test_a_supervisor_of_an_actor_ends_with_it(spawn: Any, log: Path) -> None:
    children = members(2, log)
    leader = spawn(moo.on(Leads, restart=moo.Restart(max=1)))
    supervisor = leader.recruit(children)
    handles = [supervisor.child(one) for one in children]
    refs = [handle.sleep.remote(60) for handle in handles]
    pid = pid_of_label("Leads")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    for ref in refs:
        error = ref.exception(timeout=20)
        assert isinstance(error, moo.ActorDied) and error.cause.kind == "owner"
    assert leader.recruit.options(retries=1)(children).children() != handles


# -- classes of users ------------------------------------------------------


class Coach(moo.Supervisor):
    """A supervisor with a method of its own, and a constructor that checks itself."""

    def __init__(self, log: Path, size: int) -> None:
        super().__init__(members(size, log), strategy="one_for_all", max=MANY)

    def size(self) -> int:
        return len(self.children())


def test_a_class_may_be_derived_from_the_supervisor(spawn: Any, log: Path) -> None:
    coach = spawn(Coach, log, 3)
    assert coach.size() == 3
    before = [pid_of(handle) for handle in coach.children()]
    coach.children()[0].die.tell()
    for handle, pid in zip(coach.children(), before, strict=True):
        assert has_another_pid(handle, pid)


@pytest.mark.slow
def test_one_that_makes_its_children_knows_them_after_its_restart(
    spawn: Any, log: Path
) -> None:
    inner = moo.on(Coach, name="coach").child(log, 3)
    outer = spawn(moo.Supervisor, [inner])
    wait_until_started(outer)
    coach = outer.child(inner)
    handles = coach.children()
    before, pid = [pid_of(handle) for handle in handles], pid_of_label("Coach:coach")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    for handle, old in zip(handles, before, strict=True):
        assert has_another_pid(handle, old)
    assert coach.children() == handles
    added = moo.child(Member, "added", log)
    late = coach.add(added)
    os.kill(pid_of_label("Coach:coach") or 0, signal.SIGKILL)
    assert late.ping.options(retries=MANY)() == "added"
    assert coach.child.options(retries=MANY)(added) == late
    assert coach.children() == [*handles, late]
    assert notes(log)[:6] == ["+0", "+1", "+2"] * 2


def test_its_class_is_an_ordinary_class_without_a_session(log: Path) -> None:
    assert Coach(log, 3).size() == 0  # nothing starts: that is a hook of the runtime


# -- exactly once ----------------------------------------------------------


@pytest.mark.slow
def test_random_kills_are_told_once_each_and_leave_all_running(team: Any) -> None:
    for strategy in ("one_for_one", "one_for_all", "rest_for_one"):
        dice = random.Random(strategy)
        supervisor, handles = team(4, strategy=strategy)
        monitors = [moo.monitor(handle) for handle in handles]
        for _ in range(15):
            dice.choice(handles).die.tell()
            if dice.random() < 0.5:
                pid_of(dice.choice(handles))
        for handle in handles:
            pid_of(handle)
        moo.stop(supervisor)
        for monitor in monitors:
            check_story(list(monitor))


def check_story(events: list[moo.Event]) -> None:
    """Started, then a death and a restart in turns, and one end."""
    incarnation, alive = 0, False
    for event in events[:-1]:
        if isinstance(event, moo.Started | moo.Restarted):
            assert not alive and event.incarnation == incarnation
            alive = True
        else:
            assert isinstance(event, moo.Died) and event.incarnation == incarnation
            incarnation, alive = incarnation + 1, False
    assert isinstance(events[-1], moo.Stopped | moo.Died)


# -- refused ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"strategy": "one_for_al"}, "did you mean 'one_for_all'"),
        ({"max": -1}, "max=-1 must be"),
        ({"within": 0}, "within=0 must be"),
        ({"backoff": 9.0, "longest_backoff": 1.0}, "longest_backoff=1 must be"),
        ({"jitter": 2.0}, "jitter=2 must be"),
    ],
)
def test_rules_that_make_no_sense_are_refused(
    session: Any, rules: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        moo.spawn(moo.Supervisor, [], **rules)


def test_children_that_make_no_sense_are_refused(session: Any, log: Path) -> None:
    with pytest.raises(TypeError, match="missing a required argument"):
        moo.child(Member, "x")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="detached=True makes no sense"):
        moo.on(Member, detached=True).child("x", log)
    with pytest.raises(TypeError, match=r"children\[0\]=.* must be a Child"):
        moo.spawn(moo.Supervisor, [Member])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="must be a list of children"):
        moo.spawn(moo.Supervisor, moo.child(Member, "x", log))  # type: ignore[arg-type]
    one = moo.child(Member, "x", log)
    with pytest.raises(ValueError, match="another"):
        moo.spawn(moo.Supervisor, [one, one])
    with pytest.raises(ValueError, match="restart='sometimes' must be"):
        one.options(restart="sometimes")  # type: ignore[arg-type]


def test_a_name_that_is_taken_is_the_death_of_the_supervisor(
    spawn: Any, log: Path
) -> None:
    spawn(moo.on(Member, name="taken"), "x", log)
    child = moo.on(Member, name="taken").child("y", log)
    with pytest.raises(moo.ActorDied) as caught:
        spawn(moo.Supervisor, [child]).children()
    assert "'taken' is taken" in str(caught.value.cause.exception)
