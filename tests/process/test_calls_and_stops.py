# SPDX-License-Identifier: MIT
"""Calls that are made while their actor is stopped, line by line: whatever the
schedule, each ends soon, and none that ran says that it did not."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mooactor import errors
from mooactor.control import envelope
from mooactor.process import deaths
from mooactor.process.calls import BLOCKING, LATER
from mooactor.process.objects.future import Future
from tests.marks import slow, soak
from tests.process.interleave import Thread
from tests.process.test_calls_and_deaths import ACTOR, KEY, Post, World, named
from tests.process.test_interleavings import preempting, seeded

STOPPED = {"kind": "stopped", "exitcode": 0}
ALL = range(1000)  # records


def record_of(kind: int, number: int) -> envelope.Record:
    """As the actor sends it."""
    packed = envelope.pack_record(kind, number, flags=envelope.EMPTY)
    records: list[envelope.Record] = []
    envelope.read_records(envelope.prefix(KEY, ACTOR) + packed, KEY, records)
    return records[0]


class Remote(Post):
    """The actor is on another host."""

    cut_off = False

    def was_reached(self, process_id: int) -> bool:
        return True

    def was_cut_off(self, process_id: int) -> bool:
        return self.cut_off

    def is_gone(self, process_id: int) -> bool:
        return process_id in self._gone


class Stop(World):
    """An actor that answers some calls, and is stopped; its callers; the thread that
    reads what comes of it; the housekeeper."""

    post_of = Remote

    def __init__(
        self,
        directory: Path,
        monkeypatch: pytest.MonkeyPatch,
        choose: Callable[[Any], Any],
        answers: int,
        lost: range,
        following: int | None,
    ) -> None:
        """`answers`: how many calls are taken. `lost`: which of the actor's records, in
        the order sent, are lost with a connection. `following`: see `Death`."""
        super().__init__(directory, monkeypatch, choose)
        self.schedule._files.add(__file__)
        self.now = 0.0
        monkeypatch.setattr(deaths, "perf_counter", lambda: self.now)
        self.ran: dict[int, Future] = {}
        self.way: deque[envelope.Record] = deque()  # of what is under way to here
        self.ended = self.last_came = False
        self._answers, self._lost, self._following = answers, lost, following
        self._said = 0
        self.callers: list[Thread] = []

    def started(self) -> None:
        """All of its threads."""
        self.callers = [
            self.calls("waits", 0, BLOCKING),
            self.calls("again", 10**4, LATER),
        ]
        self.threads = [
            *self.callers,
            self.schedule.add("actor", self.acts),
            self.schedule.add("reader", self.reads),
            self.schedule.add("housekeeper", self.keeps),
        ]

    def say(self, kind: int, number: int) -> None:
        if self._said not in self._lost:
            self.way.append(record_of(kind, number))
        self._said += 1

    def acts(self) -> None:
        sent = self.post.sent[ACTOR]
        while len(self.ran) < self._answers:
            self.schedule.until(lambda: len(sent) > len(self.ran) or self.all_sent())
            if len(sent) <= len(self.ran):
                break
            call_id = list(sent)[len(self.ran)]
            self.ran[call_id] = self.caller._pending[call_id]
            self.say(envelope.REPLY, call_id)
        self.say(envelope.GOAWAY, self.latest)
        assert isinstance(self.post, Remote)
        self.post.cut_off = True
        self.ended = True

    def all_sent(self) -> bool:
        return all(thread.state == "done" for thread in self.callers)

    def reads(self) -> None:
        while self.way or not self.ended:
            self.schedule.until(lambda: self.way or self.ended)  # type: ignore[arg-type, return-value]
            if not self.way:
                continue
            record = self.way.popleft()
            if record.kind == envelope.GOAWAY:
                self.deaths.on_goaway(record)
                self.last_came = True
            else:
                self.caller.on_reply(record)

    def keeps(self) -> None:
        self.schedule.until(lambda: self.ended)
        self.deaths.on_notice(
            {
                "id": ACTOR,
                "incarnation": 0,
                "record": STOPPED,
                "following": self._following,
            }
        )
        while self.due:
            self.due.pop(0)()
            under_way = len(self.way)
            if under_way and not self.last_came:
                self.schedule.until(lambda n=under_way: len(self.way) < n)  # type: ignore[misc]
            else:
                self.now += 0.25

    @property
    def latest(self) -> int:
        return max(self.ran, default=0)

    def check(self) -> None:
        assert self.now < 2 * deaths._CUT_OFF_S
        ran = list(self.ran.values())
        for future in self.futures:
            if not future.state:
                assert self._following and self.link.incarnation == self._following
                assert future.call_id in self.post.sent[self.link.process_id]
                sent_again = future.request is not None
                assert future not in ran or (
                    sent_again and future.request.before is None
                )
                continue
            error = future.failure()
            if error is None:
                assert future in ran
                continue
            assert isinstance(error, errors.ActorDied | errors.ActorUnavailable)
            assert error.delivered is None or future not in ran
            if self.last_came and future.call_id > self.latest:
                assert error.delivered is False
        assert self.link.calls == set(self.caller._pending)


def run(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    choose: Callable[[Any], Any],
    answers: int,
    lost: range,
    following: int | None,
) -> None:
    with monkeypatch.context() as patch:
        world = Stop(directory, patch, choose, answers, lost, following)
        world.started()
        world.schedule.run([])
        assert [thread.error for thread in world.threads] == [None] * 5
        world.check()


@pytest.mark.parametrize("following", [None, 1])
@pytest.mark.parametrize("lost", [ALL[:0], ALL[:1], ALL, ALL[1:], ALL[2:]], ids=str)
@pytest.mark.parametrize("seeds", [range(5), slow(range(5, 60)), soak(range(60, 1500))])
def test_a_call_that_meets_a_stop_ends_soon_in_any_schedule(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seeds: range,
    lost: range,
    following: int | None,
) -> None:
    for seed in seeds:
        with named(f"seed {seed}"):
            run(tmp_path, monkeypatch, seeded(seed), seed % 4, lost, following)


@pytest.mark.slow
@pytest.mark.parametrize("following", [None, 1])
@pytest.mark.parametrize("lost", [ALL[:0], ALL[:1]], ids=str)
def test_so_it_does_when_the_threads_change_at_any_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lost: range,
    following: int | None,
) -> None:
    for at in range(1, 200, 5):
        for to in (1, 3, 4):
            with named(f"step {at} to {to}"):
                run(tmp_path, monkeypatch, preempting(at, to), 1, lost, following)


def test_a_call_that_was_sent_as_the_news_came_waits_for_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Stop(tmp_path, monkeypatch, lambda ready: ready[0], 1, ALL[:0], None)

    def all_of_it() -> None:
        world.caller_of(1, 0, LATER)()
        (future,) = world.futures
        world.deaths.on_notice(
            {"id": ACTOR, "incarnation": 0, "record": STOPPED, "following": None}
        )
        world.caller._sent_too_late(world.link, future, future.call_id, None)
        assert not future.state
        world.caller.on_reply(record_of(envelope.REPLY, future.call_id))
        assert future.failure() is None

    thread = world.schedule.add("all", all_of_it)
    world.schedule.run([])
    assert thread.error is None
