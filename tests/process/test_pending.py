# SPDX-License-Identifier: MIT
"""Replies whose data is under way, and a signal handler that raises meanwhile."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mooactor.control import envelope
from mooactor.process.objects.future import AttachedReply, Reply, taken_over
from mooactor.process.pending import PendingReplies
from tests.interruptions import Interruption


class Plane:
    """Is struck by a signal so many times, and fails as often as it is told."""

    def __init__(self, strikes: int, error: Exception | None = None) -> None:
        self.strikes, self.error = strikes, error

    def importing(self, descriptor: bytes) -> SimpleNamespace:
        return SimpleNamespace(result=lambda: self.result(descriptor))

    def result(self, descriptor: bytes) -> memoryview:
        if self.strikes:
            self.strikes -= 1
            signal.raise_signal(signal.SIGUSR2)
        if self.error is not None:
            raise self.error
        return memoryview(descriptor)


def reply_of(plane: Any) -> Reply:
    return AttachedReply(b"", [b"data"], False, plane)


def interrupt(*_: object) -> None:
    raise Interruption


def test_an_error_of_the_data_is_the_replys_and_one_of_a_signal_handler_is_not() -> (
    None
):
    error = ValueError("no such memory")
    failed = reply_of(Plane(0, error))
    assert taken_over(failed) is error
    failed.descriptors.clear()

    reply, delivered = reply_of(Plane(1)), []
    payloads: Any = SimpleNamespace(
        reply_of=lambda record: reply, receive=lambda reply, then, memo: None
    )
    pending = PendingReplies(payloads, lambda *what: delivered.append(what[:4]))
    record: Any = SimpleNamespace(call_id=7, flags=envelope.ATTACHED, memo={})
    handler = signal.signal(signal.SIGUSR2, interrupt)
    try:
        with pytest.raises(Interruption):
            pending.takes(record)
    finally:
        signal.signal(signal.SIGUSR2, handler)
    assert pending.takes(record)  # as the poller does, when it was cut short
    assert delivered == [(7, envelope.ATTACHED, reply, None)]
    assert reply.buffers == [b"data"] and 7 not in pending


class Arrivals:
    """Three replies of one call, whose data comes when it is told to."""

    def __init__(self) -> None:
        plane: Any = None
        self.replies = [Reply(bytes([n]), [], False, plane) for n in range(3)]
        self.taken: list[Reply] = []
        self._come: dict[Reply, tuple[Any, Callable[[], None]]] = {}
        self.pending = PendingReplies(cast(Any, self), self._deliver)
        last = self.replies[-1]
        self._records: list[Any] = [
            SimpleNamespace(
                call_id=7,
                flags=envelope.ATTACHED | (0 if reply is last else envelope.STREAM),
                memo={},
                payload=reply,
            )
            for reply in self.replies
        ]

    def reply_of(self, record: Any) -> Reply:
        reply: Reply = record.payload
        return reply

    def receive(self, reply: Reply, then: Callable[[], None], memo: Any) -> Any:
        transfer = SimpleNamespace(done=False, lost=False, error=None)
        return self._come.setdefault(reply, (transfer, then))[0]

    def _deliver(self, *what: Any) -> None:
        self.taken.extend(what[4])  # as an item is taken

    def takes(self, which: int) -> None:
        assert self.pending.takes(self._records[which])

    def arrive(self, which: int) -> None:
        transfer, then = self._come[self.replies[which]]
        transfer.done = True
        then()


def test_replies_are_handed_on_in_order_whenever_their_data_comes() -> None:
    call = Arrivals()
    for which in range(3):
        call.takes(which)
    for which, there in ((2, 0), (0, 1), (1, 3)):
        call.arrive(which)
        assert call.taken == call.replies[:there]
    assert 7 not in call.pending
