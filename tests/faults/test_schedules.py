# SPDX-License-Identifier: MIT
"""Calls that are made while their actor dies or is stopped, line by line: whatever the
schedule, each ends soon or was sent to the process that runs, and none that ran says
that it did not."""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mooactor import errors
from mooactor.control import envelope, links
from mooactor.control.links import Links
from mooactor.control.sender import Sender
from mooactor.process import caller, deaths, losses
from mooactor.process.caller import Caller
from mooactor.process.calls import BLOCKING, LATER, CallOptions, Form
from mooactor.process.deaths import Deaths
from mooactor.process.interface import interface_of
from mooactor.process.objects.future import Future
from tests.marks import slow
from tests.process.interleave import Lock, Schedule, seeded

ME, ACTOR = 7 << 16, 9 << 16
KEY = bytes(envelope.KEY_BYTES)
KILLED, STOPPED = {"kind": "signal", "signal": 9}, {"kind": "stopped", "exitcode": 0}


class Member:
    def ping(self) -> None: ...


SPEC = interface_of(Member).methods["ping"]


def records_of(sender: int, packed: bytes) -> list[envelope.Record]:
    """As they arrive."""
    records: list[envelope.Record] = []
    envelope.read_records(envelope.prefix(KEY, sender) + packed, KEY, records)
    return records


class Way:
    """A `Peer` that keeps what is sent."""

    def __init__(self, sent: dict[int, None], closed: bool) -> None:
        self.closed = closed
        self._sent = sent

    def send(self, packed: bytes) -> int:
        if not self.closed:
            self._sent.update((one.call_id, None) for one in records_of(ME, packed))
        return 0

    def sending(self, packed: bytes) -> Callable[[], int]:
        return partial(self.send, packed)

    queueing = sending

    def waits_after(self, code: int, packed: bytes) -> bool:
        return not code


class Post:
    """A `Messenger` whose processes have no sockets, and are on another host."""

    cut_off = False

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)
        self.sent: dict[int, dict[int, None]] = defaultdict(dict)  # in order
        self._ways: dict[int, Way] = {}
        self._gone: set[int] = set()

    def peer(self, process_id: int) -> Way:
        if process_id in self._gone:
            return Way(self.sent[process_id], True)
        return self._ways.setdefault(process_id, Way(self.sent[process_id], False))

    def forget(self, process_id: int) -> None:
        self._gone.add(process_id)
        if (way := self._ways.pop(process_id, None)) is not None:
            way.closed = True

    def was_reached(self, process_id: int) -> bool:
        return True

    def was_cut_off(self, process_id: int) -> bool:
        return self.cut_off

    def is_gone(self, process_id: int) -> bool:
        return process_id in self._gone


class World:
    """An actor, its callers, the thread that reads what it sends, the housekeeper."""

    def __init__(
        self, directory: Path, patch: pytest.MonkeyPatch, choose: Callable[[Any], Any]
    ) -> None:
        patch.setattr(deaths, "_GRACE_S", 0.0)
        patch.setattr(deaths, "perf_counter", lambda: self.now)
        here = sys.modules[__name__]
        self.schedule = Schedule(
            choose, [caller, losses, deaths, links, here], lambda: True
        )
        patch.setattr(links, "Resending", self.resending())
        self.now = 0.0
        self.due: list[Callable[[], None]] = []
        self.futures: list[Future] = []
        self.ran: dict[int, Future] = {}
        self.way: deque[envelope.Record] = deque()  # of what is under way to here
        self.ended = self.last_came = False
        self.post = Post(directory)
        self.links = Links(ME, ME, self.post, lambda actor_id, incarnation: None)  # type: ignore[arg-type]
        self.links._moving = Lock(self.schedule)  # type: ignore[assignment]
        self.link = self.links.link(ACTOR, 0, "an actor", watch=True)
        poller: Any = SimpleNamespace(try_drain=bool, wake=lambda: None)
        housekeeper: Any = SimpleNamespace(
            at=lambda when, action: self.due.append(action), arm=lambda: None
        )
        values: Any = SimpleNamespace(producer_lost=lambda link, why: None)
        sender = Sender(self.post, self.links, housekeeper.arm)  # type: ignore[arg-type]
        nothing: Any = None
        self.caller = Caller(
            self.links,
            sender,
            poller,
            housekeeper,
            SimpleNamespace(inbound=None),  # type: ignore[arg-type]
            values,
            nothing,
            nothing,
            sender.flush,
            errors.session_ended,
        )
        self.deaths = Deaths(
            self.links,
            self.caller.losses,
            poller,
            housekeeper,
            self.post.directory,
            lambda death: self.post.forget(death.process_id),
        )
        self.callers = [
            self.schedule.add("waits", self.calls(0, BLOCKING)),
            self.schedule.add("again", self.calls(10**4, LATER)),
        ]

    def resending(self) -> type[links.Resending]:
        schedule = self.schedule

        class Waits(links.Resending):
            over = False

            def wait(self) -> None:
                schedule.until(lambda: self.over, gives_up=True)

            def end(self) -> None:
                self.over = True

        return Waits

    def calls(self, retries: int, waits: int) -> Callable[[], None]:
        def run() -> None:
            for _ in range(2):
                self.futures.append(future := Future())
                form = Form(SPEC, CallOptions(retries=retries), waits=waits)
                self.caller.start(self.link, future, form, (), {})

        return run

    def notice(self, incarnation: int, record: Any, following: int | None) -> None:
        self.deaths.on_notice(
            {
                "id": ACTOR,
                "incarnation": incarnation,
                "record": record,
                "following": following,
            }
        )

    def dies(self, times: int, for_good: bool) -> None:
        """The housekeeper is told of deaths of an actor that answers nothing."""
        for n in range(times):
            self.notice(n, KILLED, None if for_good and n == times - 1 else n + 1)
            while self.due:
                self.due.pop(0)()

    def acts(self, answers: int, lost: range) -> None:
        """The actor answers so many calls, and ends. `lost`: which of its records are
        lost with a connection."""
        sent = self.post.sent[ACTOR]

        def all_sent() -> bool:
            return all(thread.state == "done" for thread in self.callers)

        def say(kind: int, number: int) -> None:
            if len(self.ran) - (kind == envelope.REPLY) not in lost:
                packed = envelope.pack_record(kind, number, flags=envelope.EMPTY)
                self.way += records_of(ACTOR, packed)

        while len(self.ran) < answers:
            self.schedule.until(lambda: len(sent) > len(self.ran) or all_sent())
            if len(sent) <= len(self.ran):
                break
            call_id = list(sent)[len(self.ran)]
            self.ran[call_id] = self.caller._pending[call_id]
            say(envelope.REPLY, call_id)
        say(envelope.GOAWAY, self.latest)
        self.post.cut_off = self.ended = True

    def reads(self) -> None:
        while self.way or not self.ended:
            self.schedule.until(lambda: bool(self.way) or self.ended)
            if not self.way:
                continue
            record = self.way.popleft()
            if record.kind == envelope.GOAWAY:
                self.deaths.on_goaway(record)
                self.last_came = True
            else:
                self.caller.on_reply(record)

    def keeps(self, following: int | None) -> None:
        """The housekeeper is told that it has stopped, and waits for its answers."""
        self.schedule.until(lambda: self.ended)
        self.notice(0, STOPPED, following)
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
            if not future.state:  # it was sent to the process that runs
                assert self.link.cause is None and self.link.incarnation
                assert future.call_id in self.post.sent[self.link.process_id]
                assert future.call_id in self.caller._pending
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


def run(world: World, *others: Callable[[], None]) -> None:
    """All threads of a world, to their ends."""
    threads = [world.schedule.add(f"thread {n}", one) for n, one in enumerate(others)]
    world.schedule.run([])
    assert [one.error for one in (*world.callers, *threads)] == [None] * (
        2 + len(threads)
    )
    world.check()


@pytest.mark.parametrize("seeds", [range(10), slow(range(10, 100))])
def test_a_call_ends_or_is_sent_to_the_process_that_runs_in_any_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: range
) -> None:
    for seed in seeds:
        for for_good in (False, True):
            with monkeypatch.context() as patch:
                world = World(tmp_path, patch, seeded(seed))
                run(world, partial(world.dies, 1 + seed % 3, for_good))


@pytest.mark.parametrize("seeds", [range(3), slow(range(3, 40))])
def test_a_call_that_meets_a_stop_ends_soon_in_any_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: range
) -> None:
    """Whichever of the records of the actor are lost with its connection."""
    for seed in seeds:
        for lost in (range(0), range(1), range(9), range(1, 9)):
            for following in (None, 1):
                with monkeypatch.context() as patch:
                    world = World(tmp_path, patch, seeded(seed))
                    acts = partial(world.acts, seed % 4, lost)
                    run(world, acts, world.reads, partial(world.keeps, following))
