# SPDX-License-Identifier: MIT
"""An actor takes in the calls that come, or refuses them, while
cancellations, credits and the news of deaths come at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import mooactor as moo
from mooactor.control import bodies, codec, envelope
from mooactor.control.envelope import CALL, EMPTY, REFS, STREAM, Record
from mooactor.process import dispatch
from mooactor.process.actor import replies
from mooactor.process.actor.mailbox import Job
from mooactor.process.actor.serial import SerialWorker
from mooactor.process.interface import interface_of
from mooactor.process.objects.future import Reply
from mooactor.process.objects.values import Values
from mooactor.process.protocol import Life
from mooactor.tensors.network import Network

ME, CALLER = 7 << 16, 1 << 16
KEY = bytes(envelope.KEY_BYTES)


@pytest.fixture(autouse=True)
def nothing_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which calls have begun is of no interest here."""
    ignore = SimpleNamespace(note=lambda sender, call_id: None)
    monkeypatch.setattr(replies, "StartedCalls", lambda *_: ignore)


class Member:
    """Its methods are never seen at work here, but for the stream."""

    def work(self) -> None: ...

    def count(self) -> Iterator[int]:
        yield from range(100)


def values_of(process_id: int) -> Values:
    """Those of a process that has no others."""
    payloads: Any = SimpleNamespace(
        reply_of=lambda record: Reply(record.payload, [], False, plane=None),  # type: ignore[arg-type]
        receive=lambda reply, then, memo, argument: None,
    )
    relay: Any = SimpleNamespace(
        arrived=lambda token, reply: None, answered=lambda token, sender: None
    )
    links: Any = SimpleNamespace(
        process_id=process_id, is_gone=lambda process_id: False
    )
    none: Any = None
    return Values(links, none, payloads, relay, none, lambda: None)


class Serving(SerialWorker):
    """An actor without a process: keeps what it answers, and posts to itself."""

    def __init__(self) -> None:
        ignore: Any = lambda *_: None  # noqa: E731
        self.posted: list[bytes] = []
        self.values = values_of(ME)
        parts: Any = SimpleNamespace(
            directory="",
            process_id=ME,
            actor_id=ME,
            borrows=None,
            links=SimpleNamespace(watch=ignore),
            messenger=SimpleNamespace(put=self.posted.append),
            poller=SimpleNamespace(wake=ignore, try_drain=ignore),
            sender=SimpleNamespace(dirty=set()),
            payloads=SimpleNamespace(cancel=ignore),
            housekeeper=SimpleNamespace(arm=ignore),
            values=self.values,
            flush=ignore,
        )
        life = Life(ME, 0, "Member", {}, 1, b"", b"", None, Network())
        super().__init__(parts, interface_of(Member), life)
        self.instance = Member()
        self.items = 0
        self.errors: list[BaseException] = []

    def encoded_item(self, job: Job, item: Any) -> bytes:
        self.items += 1
        return b""

    def reply_error(self, job: Job, error: BaseException) -> None:
        self.errors.append(error)
        self._finish(job, codec.encode(None)[0], 0, None)

    def send_reply(self, process_id: int, record: bytes) -> None: ...

    def run_all(self) -> None:
        while (job := self.mailbox.take()) is not None:
            self._run_job(job)

    def drained(self) -> list[int]:
        """The calls that can begin, in order."""
        ids = []
        while (taken := self.mailbox.take()) is not None:
            ids.append(taken.call_id)
        return ids

    def on_call_with(self, call_id: int, token: int) -> None:
        tokens = bodies.pack_tokens([(token, ME)], b"")
        self.on_call(call(call_id)._replace(flags=EMPTY | REFS, payload=tokens))

    def dispatch_posted(self, sender: int = ME) -> None:
        head = envelope.prefix(KEY, sender)
        kinds = dispatch.handlers_of_an_actor(ME, self)
        while self.posted:
            records: list[Record] = []
            envelope.read_records(head + self.posted.pop(0), KEY, records)
            for record in records:
                kinds[record.kind](record)

    def sizes(self) -> dict[str, int]:
        """Of all that it keeps by call."""
        kept = {k: len(v) for k, v in vars(self).items() if isinstance(v, dict)}
        return {"mailbox": len(self.mailbox), **kept}


def call(call_id: int, name: bytes = b"m", flags: int = 0) -> Record:
    return Record(CALLER, CALL, EMPTY | flags, 0, call_id, 0.0, name, (), b"", {})


# -- calls -------------------------------------------------------------------


def test_calls_that_their_caller_has_made_again_are_passed_over() -> None:
    actor, queued = Serving(), call(3)
    actor.on_call(queued)
    actor.pass_over(CALLER, mark=5)
    for call_id in (4, 6, 7):
        actor.on_call(call(call_id))
    actor.on_call(queued)  # its handling was cut short after it was queued
    assert actor.drained() == [3, 6, 7]


def test_a_call_that_is_queued_is_not_refused_when_its_record_is_handled_again() -> (
    None
):
    actor, record = Serving(), call(4)
    actor.on_call(record)
    actor.stopping = True
    actor.on_call(record)
    assert actor.drained() == [4]
    actor.on_call(record)  # nor once it has been taken to be run
    assert actor.drained() == actor.errors == []
    actor.on_call(call(5))
    assert [type(error) for error in actor.errors] == [moo.ActorUnavailable]


def test_a_cancellation_that_comes_before_its_call_is_not_lost() -> None:
    actor = Serving()
    for call_id in (4, 5):
        actor.on_cancel(CALLER, call_id)
    for call_id in (3, 5, 4, 6):
        actor.on_call(call(call_id))
    assert actor.drained() == [3, 6]
    assert [type(error) for error in actor.errors] == [moo.Cancelled] * 2
    for call_id in range(10, 5000):  # of calls that have ended: the oldest go
        actor.on_cancel(CALLER, call_id)
    assert 1000 <= len(actor._vain) <= 2000


def test_a_call_that_is_dropped_with_its_caller_leaves_nothing() -> None:
    actor = Serving()
    before = actor.sizes()
    actor.on_call(call(1, b"work"))
    assert actor.on_forward(CALLER, 1, bodies.pack_numbers(5 << 16, 1))
    actor.on_process_lost(CALLER)
    assert actor.sizes() == before


# -- calls that wait for values ----------------------------------------------


def test_a_value_lets_its_call_go_at_once() -> None:
    actor = Serving()
    actor.on_call_with(4, token=1)
    assert not actor.mailbox.has_ready()
    payload = codec.encode("here")[0]
    actor.values.on_value(
        Record(CALLER, envelope.VALUE, 0, 0, 1, 0.0, b"", (), payload, {})
    )
    assert not actor.posted
    assert actor.drained() == [4]


def test_the_news_of_a_lost_value_leave_the_mailbox_to_the_thread_that_dispatches() -> (
    None
):
    actor = Serving()
    actor.on_call_with(4, token=1)
    lost = actor.values.expect(1, ME).set_error
    housekeeper = threading.Thread(target=lost, args=(moo.MooError("lost"),))
    housekeeper.start()
    housekeeper.join()
    assert not actor.mailbox.has_ready()
    (came,) = actor.posted
    actor.dispatch_posted(sender=CALLER)  # no other process can say so
    assert not actor.mailbox.has_ready()
    actor.posted.append(came)
    actor.dispatch_posted()
    assert actor.drained() == [4]


# -- streams -----------------------------------------------------------------


def test_a_stream_sends_as_many_items_as_it_has_credit_for() -> None:
    actor = Serving()
    actor.on_call(call(4, b"count", STREAM))
    actor.run_all()
    assert actor.items == 0
    for credit, items in ((3, 3), (1, 4), (1000, 100)):
        actor.on_credit(CALLER, 4, credit)
        actor.run_all()
        assert actor.items == items
    assert not actor.running


def test_credits_of_streams_that_have_ended_leave_nothing() -> None:
    actor = Serving()
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
