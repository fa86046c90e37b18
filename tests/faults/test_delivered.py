# SPDX-License-Identifier: MIT
"""The callers' knowledge of calls that a death left unanswered."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from mooactor import errors
from mooactor.process import deaths
from mooactor.process.calls import Repeatable
from mooactor.process.deaths import _WORDS, StartedCalls, read_turns
from mooactor.process.objects.future import Future
from tests.conftest import eventually
from tests.gates import wait_at

WAIT_S = 20.0


class Work:
    """Notes in a file what ran, then does what it is told."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("a", buffering=1)

    def run(self, number: int) -> int:
        print(number, file=self.file)
        return number

    def die(self, number: int) -> None:
        self.run(number)
        os.kill(os.getpid(), signal.SIGKILL)

    def pid(self) -> int:
        return os.getpid()

    def note_and_wait(self, number: int) -> None:
        self.run(number)
        threading.Event().wait()

    def die_once_there_is(self, path: Path, number: int) -> None:
        wait_at(path)
        self.die(number)


@moo.actor
class Serial(Work):
    """One at a time."""


@moo.actor
class Once(Work):
    """Has one life: the next one fails at its beginning."""

    def __init__(self, path: Path) -> None:
        if path.exists():
            raise ValueError("there was one")
        super().__init__(path)


@moo.actor(max_concurrency=4)
class Threaded(Work):
    """Four at a time."""


@moo.actor
class Async(Work):
    async def pause(self) -> None: ...


def ran(path: Path) -> set[int]:
    return set(map(int, path.read_text().split()))


@pytest.mark.parametrize("kind", [Serial, Threaded, Async])
def test_delivered_false_is_never_wrong(spawn: Any, tmp_path: Path, kind: Any) -> None:
    for seed in range(3):
        rng, path = random.Random(seed), tmp_path / f"ran {seed}"
        actor, deadly = spawn(kind, path), rng.randrange(40, 160)
        refs = {}
        for i in range(200):
            method = actor.die if i == deadly else actor.run
            priority = rng.choice([0, 0, 0, 1, -1])
            refs[i] = method.options(priority=priority).remote(i)
        ends = {i: ref.exception(timeout=WAIT_S) for i, ref in refs.items()}
        refused = {i for i, error in ends.items() if error and error.delivered is False}
        answered = {i for i, error in ends.items() if error is None}
        assert not refused & ran(path), seed
        assert answered <= ran(path), seed


def test_each_caller_learns_what_became_of_its_own_calls(
    spawn: Any, tmp_path: Path
) -> None:
    class Caller:
        def send(self, actor: Any, n: int) -> list[Any]:
            refs = [actor.run.remote(i) for i in range(n)]
            sent.touch()
            return [ref.exception(timeout=WAIT_S).delivered for ref in refs]

    path, sent = tmp_path / "ran", tmp_path / "sent"
    actor, caller = spawn(Serial, path), spawn(Caller)
    assert actor.run(500) == 500
    deadly = actor.die_once_there_is.remote(sent, 1000)
    assert caller.send.remote(actor, 50).get(timeout=WAIT_S) == [False] * 50
    error = deadly.exception(timeout=WAIT_S)
    assert isinstance(error, moo.ActorDied) and error.delivered is None
    assert ran(path) == {500, 1000}


class Kills:
    """An argument whose pickling kills the callee, and waits for the notice of that."""

    def __init__(self, handle: Any, pid: int) -> None:
        self.handle, self.pid = handle, pid

    def __reduce__(self) -> tuple[Any, ...]:
        link = self.handle._where()[1]
        os.kill(self.pid, signal.SIGKILL)
        assert eventually(lambda: link.cause is not None, WAIT_S)
        return int, ()


def test_a_call_that_comes_after_the_notice_says_nothing_of_earlier_ones(
    spawn: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooactor.process.deaths._GRACE_S", 1.0)  # it comes before that
    path = tmp_path / "ran"
    actor = spawn(Serial, path)
    pid = actor.pid()
    refs = [actor.note_and_wait.remote(1), actor.run.remote(2)]
    assert eventually(lambda: "1" in path.read_text())
    refs.append(actor.run.remote(Kills(actor, pid)))
    found = [ref.exception(timeout=WAIT_S) for ref in refs]
    assert all(isinstance(error, moo.ActorDied) for error in found)
    assert [error.delivered for error in found] == [None, False, False]


# -- the page with the calls that were started ---------------------------------


def test_a_page_keeps_the_highest_number_of_as_many_callers_as_it_has_room_for(
    tmp_path: Path,
) -> None:
    page = StartedCalls(str(tmp_path), 1)
    for number in (3, 9, 4):
        page.note(7, number)
    turns = read_turns(str(tmp_path), 1, 7)
    assert [turns.delivered(n) for n in (3, 9, 10)] == [None, None, False]
    assert read_turns(str(tmp_path), 1, 8).delivered(1) is False  # it never had a turn
    assert read_turns(str(tmp_path), 2, 7).delivered(1) is None  # there is no page
    callers = range(10, 10 + _WORDS)
    for caller in callers:
        page.note(caller, caller + 5)
    for caller in callers:
        turns = read_turns(str(tmp_path), 1, caller)
        assert turns.delivered(caller + 5) is None
        assert turns.delivered(caller + 6) is (False if turns.known else None)
    assert read_turns(str(tmp_path), 1, 10).known
    assert not read_turns(str(tmp_path), 1, callers[-1]).known


def test_pages_of_the_dead_do_not_pile_up(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(deaths, "_buried", deque())
    monkeypatch.setattr(deaths, "_ASKED_FOR_S", 1e9)
    pages = [StartedCalls(str(tmp_path), process) for process in range(4)]
    for process in range(4):
        deaths.bury(str(tmp_path), process)
    assert len(list(tmp_path.iterdir())) == len(pages)
    monkeypatch.setattr(deaths, "_ASKED_FOR_S", -1.0)
    deaths.bury(str(tmp_path), 5)  # which never had one
    assert list(tmp_path.iterdir()) == []


# -- errors that speak for more than one attempt, or for another call ----------


def test_an_error_of_the_last_attempt_speaks_for_all(
    session: Any, tmp_path: Path
) -> None:
    path = tmp_path / "ran"
    group: Any = moo.on(Once, restart=moo.Restart(max=1)).group(1, path)
    for call in (
        lambda: group[0].die.options(retries=3)(7),
        lambda: list(group.map(Once.die, [7], retries=3)),
    ):
        with pytest.raises(moo.MooError) as caught:
            call()
        assert caught.value.delivered is not False
        assert path.read_text() == "7\n"
        path.unlink()
        group = moo.on(Once, restart=moo.Restart(max=1)).group(1, path)
    moo.kill(group[0])


@pytest.mark.parametrize(
    ("earlier", "last", "said"),
    [
        (False, False, False),
        (False, None, None),
        (None, False, None),
        (None, True, True),
        (True, False, True),
        (True, None, True),
    ],
)
def test_what_is_known_of_any_attempt_is_known_of_the_call(
    earlier: bool | None, last: bool | None, said: bool | None
) -> None:
    future, error = Future(), moo.ActorUnavailable("", delivered=last)
    future.request = Repeatable(None, (), {}, 2).lost(False).lost(earlier)  # type: ignore[arg-type]
    future.set_error(error)
    assert error.delivered is said


class Picky(moo.MooError):
    def __new__(cls, what: str) -> Picky:
        return super().__new__(cls, what)


KINDS = [moo.ActorDied, moo.CallTimeout, moo.Cancelled, moo.DeadlockError, Picky]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_that_is_let_out_says_the_same_of_another_call(kind: Any) -> None:
    cause = ValueError("before it")
    error = kind("what happened")
    error.__cause__, error.delivered = cause, None
    error.add_note("a note")
    found: Any = errors.let_out(error)
    assert type(found) is kind and str(found) == "what happened"
    assert found.delivered is True and found.__notes__ == ["a note"]
    assert found.__cause__ is cause and found.__suppress_context__
    assert error.delivered is (True if kind is Picky else None)


class Asks:
    """Calls another actor, and lets out what comes of that."""

    def __init__(self, path: Path, other: Any) -> None:
        self.path, self.other = path, other

    def run(self, number: int) -> Any:
        with self.path.open("a") as file:
            print(number, file=file)
        return self.other.run(number)

    def items(self, number: int) -> Iterator[Any]:
        yield self.run(number)

    def stored(self, number: int) -> list[bool | None]:
        """Its words on the same error before and after it was let out."""
        ref = self.other.run.remote(number)
        found = []
        for _ in range(2):
            with pytest.raises(moo.ActorDied) as info:
                ref.get()
            found.append(info.value.delivered)
            errors.let_out(info.value)
        return found


def test_an_error_that_a_method_lets_out_is_of_a_call_that_ran(
    spawn: Any, group: Any, tmp_path: Path
) -> None:
    dead = spawn(Serial, tmp_path / "dead")
    moo.kill(dead)
    path = tmp_path / "ran"
    members = group(Asks, 3, path, dead)
    for call, said in (
        (lambda: dead.run(0), False),
        (lambda: members[0].run(1), True),
        (lambda: list(members[0].items(2)), True),
        (lambda: list(members.map(Asks.run, [3])), True),  # no member runs it again
    ):
        with pytest.raises(moo.ActorDied) as info:
            call()
        assert info.value.delivered is said
    assert members[0].stored(4) == [False, False]
    assert path.read_text() == "1\n2\n3\n"
