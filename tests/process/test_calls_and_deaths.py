# SPDX-License-Identifier: MIT
"""Calls that are made while their actor dies, line by line: whatever the schedule, each
has ended, or was sent to the process that runs."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mooactor import errors
from mooactor.control import envelope, links
from mooactor.control.clock import REAL
from mooactor.control.links import Links
from mooactor.control.sender import Sender
from mooactor.process import caller, deaths, losses
from mooactor.process.caller import Caller
from mooactor.process.calls import BLOCKING, LATER, CallOptions, Form
from mooactor.process.deaths import Deaths
from mooactor.process.interface import interface_of
from mooactor.process.objects.future import Future
from tests.marks import slow, soak
from tests.process.interleave import Lock, Schedule, Thread
from tests.process.test_interleavings import preempting, seeded

ME, ACTOR = 7 << 16, 9 << 16
KEY = bytes(envelope.KEY_BYTES)
HEAD = envelope.prefix(KEY, ME)
KILLED = {"kind": "signal", "signal": 9}


class Member:
    def ping(self) -> None: ...


SPEC = interface_of(Member).methods["ping"]


class Way:
    """A `Peer` that keeps what is sent."""

    def __init__(self, sent: dict[int, None], closed: bool) -> None:
        self.closed = closed
        self._sent = sent

    def send(self, record: bytes) -> int:
        records: list[envelope.Record] = []
        envelope.read_records(HEAD + record, KEY, records)
        if not self.closed:
            self._sent.update((one.call_id, None) for one in records)
        return 0

    def sending(self, record: bytes) -> Callable[[], int]:
        return partial(self.send, record)

    queueing = sending

    def waits_after(self, code: int, record: bytes) -> bool:
        return not code


class Post:
    """A `Messenger` whose processes have no sockets."""

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)
        self.sent: dict[int, dict[int, None]] = defaultdict(dict)  # in order
        self._ways: dict[int, Way] = {}
        self._gone: set[int] = set()

    def peer(self, process_id: int) -> Way:
        way = self._ways.get(process_id)
        if way is None:
            gone = process_id in self._gone
            way = Way(self.sent[process_id], gone)
            if not gone:
                way = self._ways.setdefault(process_id, way)
        return way

    def forget(self, process_id: int) -> None:
        self._gone.add(process_id)
        way = self._ways.pop(process_id, None)
        if way is not None:
            way.closed = True


class World:
    """An actor that dies some times, its callers, and the housekeeper."""

    post_of: type[Post] = Post

    def __init__(
        self,
        directory: Path,
        monkeypatch: pytest.MonkeyPatch,
        choose: Callable[[Any], Any],
    ) -> None:
        monkeypatch.setattr(deaths, "_GRACE_S", 0.0)
        here = sys.modules[__name__]
        self.schedule = Schedule(
            choose, [caller, losses, deaths, links, here], lambda: True
        )
        monkeypatch.setattr(links, "Resending", self.resending())
        self.due: list[Callable[[], None]] = []
        self.futures: list[Future] = []
        self.post = self.post_of(directory)
        self.links = Links(ME, ME, self.post, lambda actor_id, incarnation: None)  # type: ignore[arg-type]
        self.links._moving = Lock(self.schedule)  # type: ignore[assignment]
        self.link = self.links.link(ACTOR, 0, "an actor", watch=True)
        poller: Any = SimpleNamespace(try_drain=bool, wake=lambda: None)
        housekeeper: Any = SimpleNamespace(
            at=lambda when, action: self.due.append(action),
            arm=lambda: None,
            clock=REAL,
        )
        values: Any = SimpleNamespace(producer_lost=lambda link, why: None)
        payloads: Any = SimpleNamespace(inbound=None)
        sender = Sender(self.post, self.links, housekeeper.arm)  # type: ignore[arg-type]
        self.caller = Caller(
            self.links,
            sender,
            poller,
            housekeeper,
            payloads,
            values,
            None,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
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

    def resending(self) -> type[links.Resending]:
        schedule = self.schedule

        class Waits(links.Resending):
            def __init__(self) -> None:
                super().__init__()
                self.over = False

            def wait(self) -> None:
                schedule.until(lambda: self.over, gives_up=True)

            def end(self) -> None:
                self.over = True

        return Waits

    def calls(self, name: str, retries: int, waits: int) -> Thread:
        return self.schedule.add(name, self.caller_of(2, retries, waits))

    def caller_of(self, count: int, retries: int, waits: int) -> Callable[[], None]:
        def run() -> None:
            for _ in range(count):
                self.futures.append(future := Future())
                form = Form(SPEC, CallOptions(retries=retries), waits=waits)
                self.caller.start(self.link, future, form, (), {})

        return run

    def dies(self, times: int, for_good: bool) -> Thread:
        def run() -> None:
            for n in range(times):
                last = for_good and n == times - 1
                self.deaths.on_notice(
                    {
                        "id": ACTOR,
                        "incarnation": n,
                        "record": KILLED,
                        "following": None if last else n + 1,
                    }
                )
                while self.due:
                    self.due.pop(0)()

        return self.schedule.add("housekeeper", run)

    def check(self) -> None:
        present = self.post.sent[self.link.process_id]
        for future in self.futures:
            if future.state:
                with pytest.raises((errors.ActorDied, errors.ActorUnavailable)):
                    future.unwrap()
                assert future.call_id not in self.caller._pending
            else:
                assert self.link.cause is None
                assert future.call_id in present
                assert future.call_id in self.caller._pending
        assert self.link.calls == set(self.caller._pending)


def run(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    choose: Callable[[Any], Any],
    times: int,
    for_good: bool,
    handler_at: int = 0,
) -> None:
    """One schedule. `handler_at`: the line of the first caller at which a signal
    handler calls, too."""
    with monkeypatch.context() as patch:
        world = World(directory, patch, choose)
        first = world.calls("waits", 0, BLOCKING)
        threads = [
            first,
            world.calls("again", 10**4, LATER),
            world.dies(times, for_good),
        ]
        if handler_at:
            first.interrupt_at[handler_at] = world.caller_of(1, 0, LATER)
        world.schedule.run([])
        assert [thread.error for thread in threads] == [None] * 3
        world.check()


@contextmanager
def named(schedule: str) -> Iterator[None]:
    """Have a failure say in which schedule it was."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(schedule) from error


@pytest.mark.parametrize("for_good", [False, True])
@pytest.mark.parametrize(
    "seeds", [range(15), slow(range(15, 100)), soak(range(100, 3000))]
)
def test_a_call_ends_or_is_sent_to_the_process_that_runs_in_any_schedule(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seeds: range,
    for_good: bool,
) -> None:
    for seed in seeds:
        with named(f"seed {seed}"):
            run(tmp_path, monkeypatch, seeded(seed), 1 + seed % 3, for_good)


@pytest.mark.slow
@pytest.mark.parametrize("for_good", [False, True])
def test_so_it_is_when_the_threads_change_at_any_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, for_good: bool
) -> None:
    for at in range(1, 130):
        for to in (1, 2):
            with named(f"step {at} to {to}"):
                run(tmp_path, monkeypatch, preempting(at, to), 2, for_good)


@pytest.mark.slow
@pytest.mark.parametrize("for_good", [False, True])
def test_so_it_is_if_a_signal_handler_calls_at_any_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, for_good: bool
) -> None:
    for line in range(1, 90):
        with named(f"line {line}"):
            run(tmp_path, monkeypatch, seeded(line), 2, for_good, handler_at=line)
