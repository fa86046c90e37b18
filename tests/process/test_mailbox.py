# SPDX-License-Identifier: MIT
from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import mooactor as moo
from mooactor.control import bodies, codec, envelope
from mooactor.control.envelope import CALL, EMPTY, REFS, Record
from mooactor.process import handlers
from mooactor.process.actor import mailbox as mailbox_module
from mooactor.process.actor import worker as worker_module
from mooactor.process.actor.mailbox import Job, Mailbox
from mooactor.process.actor.serial import SerialWorker
from mooactor.process.calls import CallContext
from mooactor.process.objects import future as future_module
from mooactor.process.objects.future import Future, Reply
from mooactor.process.objects.values import Values
from tests.interruptions import points
from tests.process.interleave import Schedule
from tests.process.test_interleavings import preempting


def job(sender: int, call_id: int, priority: int = 0) -> Job:
    return Job(sender, call_id, 0, priority, b"m", (), None, None)


def drained(mailbox: Mailbox) -> list[int]:
    ids = []
    while (taken := mailbox.take()) is not None:
        ids.append(taken.call_id)
    return ids


def test_jobs_leave_in_the_order_they_came() -> None:
    mailbox = Mailbox()
    for i in range(5):
        mailbox.put(job(1, i))
    assert len(mailbox) == 5
    assert drained(mailbox) == [0, 1, 2, 3, 4]
    assert not mailbox.has_ready()


def test_higher_levels_leave_first_and_keep_their_order() -> None:
    mailbox = Mailbox()
    for i, priority in enumerate((0, 2, -1, 2, 0)):
        mailbox.put(job(1, i, priority))
    assert drained(mailbox) == [1, 3, 0, 4, 2]


def test_a_job_that_waits_holds_up_its_own_caller_only() -> None:
    mailbox = Mailbox()
    value = Future()
    waiting = job(1, 0)
    waiting.needs = [(9, value)]
    mailbox.put(waiting)
    mailbox.put(job(1, 1))
    mailbox.put(job(2, 2))
    assert drained(mailbox) == [2]
    assert len(mailbox) == 2
    value.set_value("here")
    mailbox.settle()
    assert drained(mailbox) == [0, 1]


def test_removed_jobs_are_gone() -> None:
    mailbox = Mailbox()
    for i in range(3):
        mailbox.put(job(1, i))
    removed = mailbox.remove(1, 1)
    assert removed is not None
    assert removed.call_id == 1
    assert mailbox.remove(1, 1) is None
    assert mailbox.remove(2, 0) is None
    assert drained(mailbox) == [0, 2]


def test_a_job_is_taken_or_removed_though_both_are_tried_at_once() -> None:
    mailbox, taken, over = Mailbox(), list[int](), threading.Event()

    def take() -> None:
        while not over.is_set() or mailbox.has_ready():
            if (one := mailbox.take()) is not None:
                taken.append(one.call_id)

    thread, interval = threading.Thread(target=take), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        removed = []
        for call_id in range(20_000):
            mailbox.put(job(1, call_id))
            if mailbox.remove(1, call_id - call_id % 5) is not None:
                removed.append(call_id - call_id % 5)
    finally:
        sys.setswitchinterval(interval)
        over.set()
        thread.join()
    assert sorted(taken + removed) == list(range(20_000))


def test_the_jobs_of_one_sender_are_found_wherever_they_wait() -> None:
    mailbox = Mailbox()
    held = job(1, 0)
    held.needs = [(1, Future())]
    for each in (held, job(1, 1), job(2, 2), job(1, 3, 5)):
        mailbox.put(each)
    assert sorted(j.call_id for j in mailbox.of_sender(1)) == [0, 1, 3]
    assert len(mailbox) == 4


class Taken(SerialWorker):
    """Takes calls without arguments in, and has nothing else of an actor."""

    cut = False  # a signal handler raises before the next answer

    def __init__(self, max_pending: int = 0) -> None:
        self.mailbox, self.label = Mailbox(), "Taken"
        self.stopping, self._may_refuse = False, max_pending > 0
        options = SimpleNamespace(max_pending=max_pending)
        self.interface: Any = SimpleNamespace(options=options)
        self._callers, self._marks, self._vain = {1: 0}, {}, {}
        self.running = {}
        values = SimpleNamespace(given_up=lambda caller, mark: None)
        self.parts: Any = SimpleNamespace(values=values)
        self.let_go: list[Job] = []
        self.refused: list[BaseException] = []

    def _let_go(self, job: Job) -> None:
        self.let_go.append(job)

    def reply_error(self, job: Job, error: BaseException) -> None:
        if self.cut:
            self.cut = False
            raise KeyboardInterrupt
        self.refused.append(error)


def context_of(call_id: int) -> CallContext:
    return CallContext(7 << 16, "Taken", 1, call_id, (), None, "m")


def test_one_call_holds_up_all_calls_of_a_process_if_none_of_these_has_ended() -> None:
    worker = Taken()
    worker._methods, worker.current = {}, None
    for one in (job(1, 2), job(1, 3, 5), job(2, 9)):
        worker.mailbox.put(one)
    assert worker.holder_of_all(1, 5) is None  # nothing runs, so one of them may
    worker.current = context_of(8)
    assert worker.holder_of_all(1, 5) is worker.current
    assert worker.holder_of_all(2, 9) is worker.current
    assert worker.holder_of_all(1, 6) is None  # call 1 has ended, or is on its way
    assert worker.holder_of_all(3, 0) is None

    running = worker.running[1, 8] = job(1, 8)
    assert worker.holder_of_all(1, 13) is worker.current
    running.context = worker.current
    assert worker.holder_of_all(1, 13) is worker.current
    running.parked = True  # a stream, whose end is up to its consumer
    assert worker.holder_of_all(1, 13) is None
    running.parked, running.context = False, context_of(8)
    assert worker.holder_of_all(1, 13) is None  # there are two of them


def call(call_id: int) -> Record:
    return Record(1, 0, CALL, EMPTY, 0, call_id, 0.0, b"m", (), b"", {})


def test_calls_that_their_caller_has_made_again_are_passed_over() -> None:
    worker = Taken()
    worker.pass_over(1, mark=5)
    for call_id in (4, 6, 7):
        worker.on_call(call(call_id))
    assert drained(worker.mailbox) == [6, 7]
    assert [one.call_id for one in worker.let_go] == [4]


def test_a_call_that_is_queued_stays_though_its_record_is_handled_again() -> None:
    """A signal handler had cut that short, and later records were handled meanwhile."""
    worker, record = Taken(), call(4)
    worker.on_call(record)
    worker.pass_over(1, mark=5)
    worker.on_call(record)
    assert drained(worker.mailbox) == [4]
    assert not worker.let_go


def test_a_call_that_is_queued_is_not_refused_when_its_record_is_handled_again() -> (
    None
):
    worker, record = Taken(), call(4)
    worker.on_call(record)
    worker.stopping = True
    worker.on_call(record)
    assert drained(worker.mailbox) == [4]
    worker.on_call(record)  # nor once it has been taken to be run
    assert drained(worker.mailbox) == []
    assert not worker.let_go


def test_a_call_that_is_refused_stays_so_though_there_is_room_by_then() -> None:
    worker, record = Taken(max_pending=1), call(5)
    worker.on_call(call(4))
    worker.cut = True
    with pytest.raises(KeyboardInterrupt):
        worker.on_call(record)
    assert drained(worker.mailbox) == [4]
    worker.on_call(record)
    assert drained(worker.mailbox) == []
    assert [type(error) for error in worker.refused] == [moo.Overloaded]


def test_a_cancellation_that_comes_before_its_call_is_not_lost() -> None:
    worker = Taken()
    for call_id in (4, 5):
        worker.on_cancel(1, call_id)
    for call_id in (3, 5, 4, 6):
        worker.on_call(call(call_id))
    assert drained(worker.mailbox) == [3, 6]
    assert [one.call_id for one in worker.let_go] == [5, 4]
    assert [type(error) for error in worker.refused] == [moo.Cancelled] * 2


def test_cancellations_of_calls_that_have_ended_are_forgotten_the_oldest_first() -> (
    None
):
    worker = Taken()
    for call_id in range(10_000):
        worker.on_cancel(1, call_id)
    assert 1000 <= len(worker._vain) <= 2000
    worker.on_call(call(9999))
    assert drained(worker.mailbox) == []


ME = 7 << 16


class Awaiting(Taken):
    """Takes calls with Refs in, and what its process posts to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.posted: list[bytes] = []
        self._handlers = handlers.of_an_actor(ME, self)
        self.values = values_of(ME)
        messenger = SimpleNamespace(put=self.posted.append)
        poller = SimpleNamespace(wake=lambda: None)
        self.parts = SimpleNamespace(
            values=self.values, messenger=messenger, poller=poller
        )

    def on_call_with(self, call_id: int, token: int) -> None:
        tokens = bodies.pack_tokens([(token, ME)], b"")
        self.on_call(call(call_id)._replace(flags=EMPTY | REFS, payload=tokens))

    def dispatch_posted(self, sender: int = ME) -> None:
        head = envelope.prefix(KEY, sender)
        while self.posted:
            records: list[Record] = []
            envelope.read_records(head + self.posted.pop(0), KEY, records)
            for record in records:
                self._handlers[record.kind](record)


KEY = bytes(envelope.KEY_BYTES)


def values_of(process_id: int) -> Values:
    """Those of a process that has no others."""
    payloads = SimpleNamespace(
        reply_of=lambda record: Reply(record.payload, [], False, plane=None),  # type: ignore[arg-type]
        receive=lambda reply, then, memo: None,
    )
    relay = SimpleNamespace(
        arrived=lambda token, reply: None, answered=lambda token, sender: None
    )
    links = SimpleNamespace(process_id=process_id, is_gone=lambda process_id: False)
    none: Any = None
    return Values(
        links,  # type: ignore[arg-type]
        none,
        payloads,  # type: ignore[arg-type]
        relay,  # type: ignore[arg-type]
        none,
        lambda: None,
    )


def test_a_value_lets_its_call_go_at_once() -> None:
    worker = Awaiting()
    worker.on_call_with(4, token=1)
    assert not worker.mailbox.has_ready()
    payload = codec.encode("here")[0]
    worker.values.on_value(
        Record(1, 0, envelope.VALUE, 0, 0, 1, 0.0, b"", (), payload, {})
    )
    assert not worker.posted
    assert drained(worker.mailbox) == [4]


def test_the_news_of_a_lost_value_leave_the_mailbox_to_the_thread_that_dispatches() -> (
    None
):
    worker = Awaiting()
    worker.on_call_with(4, token=1)
    value = worker.values.expect(1, ME)
    housekeeper = threading.Thread(target=value.set_error, args=(moo.MooError("lost"),))
    housekeeper.start()
    housekeeper.join()
    assert not worker.mailbox.has_ready()
    worker.dispatch_posted()
    assert drained(worker.mailbox) == [4]


def test_no_other_process_says_that_a_value_has_come() -> None:
    worker = Awaiting()
    worker.on_call_with(4, token=1)
    worker.values.expect(1, ME).set_error(moo.MooError("lost"))
    worker.dispatch_posted(sender=1 << 16)
    assert not worker.mailbox.has_ready()


def test_a_signal_handler_that_dispatches_a_call_and_its_value_holds_up_no_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker, ready = Awaiting(), Job.ready
    tokens = bodies.pack_tokens([(1, ME)], b"")
    record = call(4)._replace(flags=EMPTY | REFS, payload=tokens)

    def interrupted(job: Job) -> bool:
        was_ready = ready(job)
        monkeypatch.setattr(Job, "ready", ready)
        worker.on_call(record)  # its message is not done with
        worker.values.expect(1, ME).set_error(moo.MooError("lost"))
        worker.dispatch_posted()
        return was_ready

    monkeypatch.setattr(Job, "ready", interrupted)
    worker.on_call(record)
    worker.on_call(call(5))
    assert drained(worker.mailbox) == [4, 5]


@pytest.mark.slow
@pytest.mark.parametrize("first", ["the dispatching thread", "the housekeeper"])
def test_no_call_is_held_for_ever_or_runs_early_whenever_a_value_is_lost(
    first: str,
) -> None:
    """One thread takes calls in, another has the news of a death; they change at any
    one line."""
    watched = (mailbox_module, worker_module, future_module)
    steps = at = 1
    while at <= steps:
        worker = Awaiting()
        worker.on_call_with(3, token=1)
        lost, later = (worker.values.expect(token, ME) for token in (1, 2))
        schedule = Schedule(preempting(at, 1), watched, lambda: True)

        def take_in(worker: Awaiting = worker) -> None:
            worker.on_call_with(4, token=1)
            worker.on_call_with(5, token=2)
            worker.on_call(call(6))
            worker.dispatch_posted()

        def lose(value: Future = lost) -> None:
            value.set_error(moo.MooError("lost"))

        threads = {"the dispatching thread": take_in, "the housekeeper": lose}
        names = sorted(threads, key=lambda name: name != first)
        running = [schedule.add(name, threads[name]) for name in names]
        schedule.run([])
        assert [one.error for one in running] == [None, None], at
        worker.dispatch_posted()
        assert drained(worker.mailbox) == [3, 4], at
        later.set_error(moo.MooError("lost"))
        worker.dispatch_posted()
        assert drained(worker.mailbox) == [5, 6], at
        steps, at = len(schedule.history), at + 1


@pytest.mark.parametrize("again", [True, False])
def test_a_signal_handler_may_come_in_at_any_point_of_that(again: bool) -> None:
    """It waits, while its thread queues a call, for the last value that holds calls up;
    and queues the same call `again`, as long as its message is not done with."""
    for point in points():
        mailbox, value = Mailbox(), Future()
        jobs = [job(1, number) for number in range(3)]
        for one in jobs[:2]:
            one.needs = [(1, value)]
        mailbox.put(jobs[0])

        def put(mailbox: Mailbox = mailbox, jobs: list[Job] = jobs) -> None:
            for one in jobs[1:]:
                mailbox.put(one)

        def wait(
            mailbox: Mailbox = mailbox,
            value: Future = value,
            put: Callable[[], None] = put,
        ) -> None:
            if again:
                put()
            value.set_value(None)
            mailbox.settle()

        point.interrupt(put, wait)
        wait()
        assert drained(mailbox) == [0, 1, 2], point.where
        assert not mailbox._held, point.where
