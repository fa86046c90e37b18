# SPDX-License-Identifier: MIT
"""Values that arrive while a signal handler comes in between, at any point: it raises,
or waits for a call, and so dispatches what was under way once more."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

import mooactor as moo
from mooactor.control import bodies, codec, envelope
from mooactor.process.objects.future import Future, Reply
from mooactor.process.objects.queues import first_of, take_out
from mooactor.process.objects.relay import Relay
from mooactor.process.objects.values import Values
from tests.interruptions import Interruption, Point, pairs, points

ME, OWNER, HOLDER, TOKEN = 7 << 16, 8 << 16, 9 << 16, 5


class Process:
    """One that waits for a value, and whose data comes when it is told to."""

    def __init__(self, *come: envelope.Record | None, at_once: bool = False) -> None:
        """`come`: records of a value, and None where its call comes. `at_once`: no data
        is on another host."""
        self.posted: list[tuple[int, int, int]] = []
        self.seen: list[Future] = []
        self.lost = 0  # so many of the next ones
        self._at_once = at_once
        self.plane = self.borrows = None  # as `Payloads`; there is no memory in it
        self._come = deque(come)
        self._flying: deque[tuple[Any, Callable[[], None]]] = deque()
        link = SimpleNamespace(cause=None, process_id=HOLDER)
        links: Any = SimpleNamespace(
            process_id=ME, is_gone=lambda one: False, link=lambda *_, **__: link
        )
        sender: Any = SimpleNamespace(post=self._post)
        payloads: Any = self
        later: Any = lambda *_: None  # noqa: E731
        self.relay = Relay(links, sender, payloads, later, lambda: None)
        self.values = Values(links, sender, payloads, self.relay, later, lambda: None)

    def call(self) -> None:
        """One that is given the value, and lets it go as soon as it is there."""
        future = self.values.expect(TOKEN, OWNER)
        future.listen(lambda: self._see(future))
        future.listen(lambda: self.values.forget(TOKEN))

    def _see(self, future: Future) -> None:
        if future not in self.seen:
            self.seen.append(future)

    def _post(self, to: int, kind: int, token: int, *_: object) -> None:
        self.posted.append((to, kind, token))

    # -- as `Payloads` -----------------------------------------------------

    def reply_of(self, record: envelope.Record) -> Reply:
        plane: Any = None
        made = Reply(record.payload, [], False, plane)
        reply: Reply = record.memo.setdefault("reply", made)
        return reply

    def receive(
        self, reply: Reply, then: Callable[[], None], memo: dict[str, Any] | None
    ) -> Any:
        if self._at_once:
            return None
        memo = {} if memo is None else memo
        made = SimpleNamespace(
            reply=reply, done=False, lost=False, error=None, cut_off=moo.MooError
        )
        transfer = memo.setdefault("transfer", made)
        if not transfer.done and transfer not in [one for one, _ in self._flying]:
            self._flying.append((transfer, then))
        take_out(deque(), None)  # it may be cut short here, as in earnest
        return transfer

    def cancel(self, transfer: Any) -> None:
        if transfer is not None:
            transfer.done = True

    def soon(self, action: Callable[[], None]) -> None:
        self._flying.append((SimpleNamespace(done=True), action))

    def have_come(self, *records: envelope.Record | None) -> None:
        self._come.extend(records)

    # -- as the poller -----------------------------------------------------

    def run(self, data_first: bool = False) -> None:
        """Handle what has come; what is cut short comes again. `data_first`: data that
        is under way was quicker than that."""
        if data_first:
            self._land()
        while self._come:
            record = first_of(self._come)
            if record is None:
                self.call()
            elif record.kind == envelope.REDIRECT:
                self.relay.on_redirect(record)
            else:
                self.values.on_value(record)
            take_out(self._come, record)
        self._land()

    def _land(self) -> None:
        while (first := first_of(self._flying)) is not None:
            transfer, then = first
            if not transfer.done:
                transfer.done, transfer.lost = True, self.lost > 0
                self.lost -= 1
            then()
            take_out(self._flying, first)

    def assert_it_has(self, value: object, where: str) -> None:
        """The call that was made first: any other one was handled again, after that."""
        assert self.seen and self.seen[0].unwrap() == value, where
        values, relay = self.values, self.relay
        assert not (values._expected or values._arriving or values._again), where
        assert not (values._unclaimed.since or relay._asked or relay._keys), where


def value(sender: int = OWNER, number: int = 0) -> envelope.Record:
    """`number`: others will ask for it here."""
    payload: Any = codec.encode("here")[0]
    if number:
        payload = bodies.pack_numbers(number) + payload
    return record(sender, envelope.VALUE, envelope.KEEP * bool(number), payload)


def redirect() -> envelope.Record:
    return record(OWNER, envelope.REDIRECT, 0, bodies.pack_numbers(HOLDER, 3))


def record(sender: int, kind: int, flags: int, payload: Any) -> envelope.Record:
    return envelope.Record(sender, 0, kind, flags, 0, TOKEN, 0.0, b"", (), payload, {})


def raises(process: Process, point: Point) -> None:
    try:
        point.interrupt(process.run)
    except Interruption:
        pass


def waits(process: Process, point: Point) -> None:
    point.interrupt(process.run, process.run)


handlers = pytest.mark.parametrize("handler", [raises, waits])


@handlers
@pytest.mark.parametrize("number", [0, 3])
@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("call", ["before", "after"])
def test_a_value_comes(handler: Any, call: str, at_once: bool, number: int) -> None:
    for point in points():
        both = (None, value(number=number))
        process = Process(*both[:: 1 if call == "before" else -1], at_once=at_once)
        handler(process, point)
        process.run()
        process.assert_it_has("here", point.where)
        kept = [one.stored is not None for one in process.relay._kept.values()]
        assert kept == [True] * bool(number), point.where


@handlers
@pytest.mark.parametrize("number", [0, 3])
def test_where_the_first_is_lost_the_second_is_taken(handler: Any, number: int) -> None:
    for point in points():
        process = Process(None, value(number=number), value(number=number))
        process.lost = 1
        handler(process, point)
        process.run()
        process.assert_it_has("here", point.where)


@handlers
@pytest.mark.parametrize("call", ["before", "after"])
def test_what_a_holder_did_not_give_its_owner_is_asked_for(
    handler: Any, call: str
) -> None:
    for point in points():
        records = redirect(), value(HOLDER)
        process = Process(*((None, *records) if call == "before" else records))
        process.lost = 1
        handler(process, point)
        process.run()
        assert (OWNER, envelope.RETRY, TOKEN) in process.posted, point.where
        assert not process.seen, point.where
        process.have_come(value(), *([] if call == "before" else [None]))
        process.run()
        process.assert_it_has("here", point.where)


@pytest.mark.parametrize("number", [0, 3])
@pytest.mark.parametrize("call", ["before", "after"])
def test_a_value_comes_though_it_is_cut_short_twice(call: str, number: int) -> None:
    """Of its data is told once, and that may be while nothing waits for it yet."""
    for first, second in pairs(step=7):
        both = (None, value(number=number))
        process = Process(*both[:: 1 if call == "before" else -1])
        raises(process, first)
        with suppress(Interruption):
            second.interrupt(partial(process.run, data_first=True))
        process.run()
        process.assert_it_has("here", f"{first.where}\n{second.where}")
