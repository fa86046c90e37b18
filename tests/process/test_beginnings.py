# SPDX-License-Identifier: MIT
"""Calls that begin while another thread dispatches what their callers send after them,
line by line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from mooactor.control import bodies, codec
from mooactor.control.envelope import CALL, EMPTY, STREAM, Record
from mooactor.errors import Cancelled
from mooactor.process.actor import (
    answers,
    beginnings,
    mailbox,
    serial,
    worker,
)
from mooactor.process.actor.mailbox import Job
from mooactor.process.actor.serial import SerialWorker
from mooactor.process.calls import context
from mooactor.process.interface import interface_of
from tests.process.interleave import Schedule
from tests.process.test_interleavings import preempting

ME, CALLER = 7 << 16, 1 << 16
WATCHED = (answers, beginnings, mailbox, serial, worker)


@pytest.fixture(autouse=True)
def nothing_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which calls have begun is of no interest here."""
    ignore = SimpleNamespace(note=lambda sender, call_id: None)
    monkeypatch.setattr(answers, "StartedCalls", lambda *_: ignore)


class Member:
    """Its methods are the test's."""

    def __init__(self, run: Callable[[], object] | None = None) -> None:
        self.run = run

    def work(self) -> None:
        assert self.run is not None
        self.run()

    def count(self) -> Iterator[int]:
        yield from range(100)


class Serving(SerialWorker):
    """An actor without a process: keeps what it sends."""

    def __init__(self, member: Member) -> None:
        ignore: Any = lambda *_: None  # noqa: E731
        parts: Any = SimpleNamespace(
            directory="",
            process_id=ME,
            actor_id=ME,
            borrows=None,
            links=SimpleNamespace(watch=ignore),
            poller=SimpleNamespace(wake=ignore, try_drain=ignore),
            sender=SimpleNamespace(dirty=set()),
            payloads=SimpleNamespace(cancel=ignore),
            housekeeper=SimpleNamespace(arm=ignore),
            values=SimpleNamespace(given_up=ignore),
            flush=ignore,
        )
        life: Any = {"label": "Member", "policy": None}
        super().__init__(parts, interface_of(Member), life)
        self.instance = member
        self.items = 0
        self.errors: list[BaseException] = []

    def send_item(self, job: Job, item: Any) -> None:
        job.credit -= 1
        self.items += 1

    def reply_error(self, job: Job, error: BaseException) -> None:
        self.errors.append(error)
        self._finish(job, codec.encode(None)[0], 0, None)

    def send_reply(self, process_id: int, record: bytes) -> None: ...

    def run_all(self) -> None:
        while (job := self.mailbox.take()) is not None:
            self._run_job(job)

    def sizes(self) -> dict[str, int]:
        """Of all that it keeps by call."""
        kept = {k: v for k, v in vars(self).items() if isinstance(v, dict)}
        kept = {k: len(v) for k, v in kept.items()}
        return {"mailbox": len(self.mailbox), **kept}


def call(call_id: int, name: bytes, flags: int = 0) -> Record:
    return Record(CALLER, 0, CALL, EMPTY | flags, 0, call_id, 0.0, name, (), b"", {})


def in_any_order(run: Callable[[Callable[[Any], Any], bool], Schedule]) -> None:
    """Each schedule of two threads that changes between them at one line."""
    for actor_first in (True, False):
        steps = at = 1
        while at <= steps:
            schedule = run(preempting(at, 1), actor_first)
            steps, at = len(schedule.history), at + 1


def both(
    choose: Callable[[Any], Any],
    actor_first: bool,
    actor: Callable[[], object],
    dispatch: Callable[[], object],
    schedule: Schedule | None = None,
) -> Schedule:
    schedule = schedule or Schedule(choose, WATCHED, lambda: True)
    names = {"actor": actor, "dispatch": dispatch}
    order = sorted(names, reverse=not actor_first)
    threads = [schedule.add(name, names[name]) for name in order]
    schedule.run([])
    assert [one.error for one in threads] == [None, None], schedule.history
    return schedule


@pytest.mark.slow
def test_a_stream_gets_each_credit_once_however_it_begins() -> None:
    def run(choose: Callable[[Any], Any], actor_first: bool) -> Schedule:
        actor = Serving(Member())
        actor.on_call(call(4, b"count", STREAM))
        schedule = both(
            choose, actor_first, actor.run_all, lambda: actor.on_credit(CALLER, 4, 3)
        )
        actor.run_all()
        assert actor.items == 3, schedule.history
        return schedule

    in_any_order(run)


def test_a_credit_that_comes_while_a_stream_begins_is_not_lost() -> None:
    actor = Serving(Member())
    actor.on_call(call(4, b"count", STREAM))

    class Running(dict[tuple[int, int], Job]):
        """The actor begins its calls just after somebody has looked for one."""

        def get(self, key: Any, default: Any = None) -> Any:
            found = super().get(key, default)
            actor.run_all()
            return found

    actor.running = Running()
    actor.on_credit(CALLER, 4, 3)
    actor.run_all()
    assert actor.items == 3


def test_credits_of_streams_that_have_ended_leave_nothing() -> None:
    actor = Serving(Member())
    actor.on_call(call(1, b"count", STREAM))
    actor.on_cancel(CALLER, 1)
    before = actor.sizes()
    for call_id in range(2, 20):
        actor.on_call(call(call_id, b"count", STREAM))
        actor.on_credit(CALLER, call_id, 1000)
        actor.run_all()
        actor.on_credit(CALLER, call_id, 1000)  # it crossed with the last item
    actor.on_call(call(20, b"count", STREAM))
    actor.on_process_lost(CALLER)
    actor.on_credit(CALLER, 20, 1000)
    after = actor.sizes() | {"_callers": before["_callers"]}
    assert after == before | {"_seconds": after["_seconds"]}


def test_a_call_that_is_dropped_with_its_caller_leaves_nothing() -> None:
    actor = Serving(Member())
    before = actor.sizes()
    actor.on_call(call(1, b"work"))
    assert actor.on_forward(CALLER, 1, bodies.pack_pair(5 << 16, 1))
    actor.on_process_lost(CALLER)
    assert actor.sizes() == before


@pytest.mark.slow
def test_a_call_that_runs_though_it_is_cancelled_can_see_it() -> None:
    ran = 0

    def run(choose: Callable[[Any], Any], actor_first: bool) -> Schedule:
        schedule = Schedule(choose, WATCHED, lambda: True)
        said, seen = list[int](), list[bool]()

        def work() -> None:
            schedule.until(lambda: bool(said))
            here = context.get()
            assert here is not None
            seen.append(here.cancelled)

        def cancel() -> None:
            actor.on_cancel(CALLER, 4)
            said.append(4)

        actor = Serving(Member(work))
        actor.on_call(call(4, b"work"))
        both(choose, actor_first, actor.run_all, cancel, schedule)
        kinds = [type(error) for error in actor.errors]
        assert (seen, kinds) in (([True], []), ([], [Cancelled])), schedule.history
        nonlocal ran
        ran += len(seen)
        return schedule

    in_any_order(run)
    assert ran
