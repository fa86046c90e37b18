# SPDX-License-Identifier: MIT
"""Replies with data: what a signal handler raises meanwhile is for the program."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from mooactor.control import envelope
from mooactor.process.objects.future import AttachedReply, Reply, taken_over
from mooactor.process.pending import PendingReplies


class Alarm(Exception):
    pass


class Plane:
    """Is struck by the signal so many times, and fails as often as it is told."""

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


@pytest.fixture(autouse=True)
def alarms() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGUSR2, ring)
    yield
    signal.signal(signal.SIGUSR2, before)


def reply_of(plane: Any) -> Reply:
    return AttachedReply(b"", [b"data"], False, plane)


def test_it_is_no_error_of_the_reply() -> None:
    reply = reply_of(Plane(1))
    with pytest.raises(Alarm):
        taken_over(reply)
    assert taken_over(reply) is None
    assert reply.buffers == [b"data"] and reply.descriptors == []


def test_an_error_of_the_reply_is_one() -> None:
    error = ValueError("no such memory")
    reply = reply_of(Plane(0, error))
    assert taken_over(reply) is error
    reply.descriptors.clear()


@pytest.mark.parametrize("strikes", [0, 1, 3])
def test_it_costs_no_reply(strikes: int) -> None:
    reply, delivered = reply_of(Plane(strikes)), []
    payloads: Any = SimpleNamespace(
        reply_of=lambda record: reply, receive=lambda reply, then, memo: None
    )
    pending = PendingReplies(payloads, lambda *what: delivered.append(what[:4]))
    record: Any = SimpleNamespace(call_id=7, flags=envelope.ATTACHED, memo={})
    if strikes:
        with pytest.raises(Alarm):
            pending.takes(record)
    assert pending.takes(record)  # as the poller does, when it was cut short
    assert delivered == [(7, envelope.ATTACHED, reply, None)]
    assert 7 not in pending
