# SPDX-License-Identifier: MIT
"""Supervisors over real processes. For the strategies see tests/host/test_children."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from mooactor.process.supervision import Strategy
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


# -- starting --------------------------------------------------------------


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
    empty = spawn(moo.Supervisor)
    wait_until_started(empty)
    assert empty.children() == []


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
    ref = second.stay.remote()
    again = second.ping.options(retries=1).remote()
    first.die.tell(signal.SIGSEGV)
    error = ref.exception(timeout=20)
    assert isinstance(error, moo.ActorRestarted)
    assert error.cause.kind == "sibling" and error.cause.actor == "Member"
    assert error.cause.origin.signal == signal.SIGSEGV
    assert "restarted together with Member: killed by signal 11" in str(error)
    assert again.get(timeout=20) == "1"  # the caller's word: it may run twice


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
    error = second.stay.remote().exception(timeout=20)
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


# -- the supervisor's own end ----------------------------------------------


def kill_labelled(label: str, number: int = signal.SIGKILL) -> None:
    (pid,) = [info.pid for info in moo.actors() if info.label == label]
    assert pid is not None
    os.kill(pid, number)


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
    before = pid_of(stays)
    kill_labelled("Supervisor:inner")
    assert has_another_pid(stays, before)
    assert moo.lookup("done") != done  # a new actor
    assert outer.child(inner).children() == [moo.lookup("done"), stays]
    with pytest.raises(moo.ActorUnavailable):
        moo.lookup("stopped")


def test_a_supervisor_that_hangs_delays_no_restart(team: Any) -> None:
    supervisor, (first, second) = team(2, strategy="one_for_all")
    before = [pid_of(first), pid_of(second)]
    kill_labelled("Supervisor", signal.SIGSTOP)
    first.die.tell()
    assert has_another_pid(first, before[0]) and has_another_pid(second, before[1])
    kill_labelled("Supervisor", signal.SIGCONT)
    assert supervisor.children() == [first, second]


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


# -- classes of users ------------------------------------------------------


class Coach(moo.Supervisor):
    """A supervisor with a method of its own, and a constructor that checks itself."""

    def __init__(self, log: Path, size: int) -> None:
        super().__init__(members(size, log), strategy="one_for_all", max=MANY)

    def size(self) -> int:
        return len(self.children())


def test_a_class_may_be_derived_from_the_supervisor(spawn: Any, log: Path) -> None:
    assert Coach(log, 3).size() == 0  # nothing starts: that is a hook of the runtime
    inner = moo.on(Coach, name="coach").child(log, 2)
    coach = spawn(moo.Supervisor, [inner]).child(inner)
    assert coach.size() == 2
    handles = coach.children()
    late = coach.add(moo.child(Member, "late", log))
    before = pid_of(late)
    kill_labelled("Coach:coach")
    assert has_another_pid(late, before)  # also those that it did not make
    assert coach.children.options(retries=MANY)() == [*handles, late]


# -- refused ---------------------------------------------------------------
