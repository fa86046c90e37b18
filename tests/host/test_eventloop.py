# SPDX-License-Identifier: MIT
"""Lines that an agent leaves unread for a while."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mooactor.control.lifeline import Lifeline
from mooactor.host.eventloop import EventLoop

_MIB = 1 << 20


class Heard:
    """The listener of one line, and both ends of it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.loop, self.line, self.mine = EventLoop(), Lifeline(ours), Lifeline(theirs)
        self.numbers: list[int] = []
        self.closed = 0
        self.loop.watch_line(self.line, self)

    def handle(self, line: Any, message: dict[str, Any], fds: list[int]) -> None:
        self.numbers.append(message["n"])

    def line_closed(self, line: Any) -> None:
        self.closed += 1

    def serve(self, rounds: int = 20) -> None:
        for _ in range(rounds):
            self.loop.serve(time.monotonic())

    def sleeps(self) -> bool:
        """Whether the loop has nothing to do."""
        before = time.monotonic()
        self.loop.serve(before + 0.05)
        return time.monotonic() >= before + 0.05


@pytest.fixture
def heard() -> Iterator[Heard]:
    made = Heard()
    yield made
    made.loop.close_line(made.line)
    made.line.close()
    made.mine.close()
    made.loop._selector.close()


def test_a_paused_line_is_read_when_it_is_resumed(heard: Heard) -> None:
    heard.loop.pause_reading(heard.line)
    heard.mine.post({"n": 1})
    assert heard.sleeps()
    assert heard.numbers == []
    heard.loop.resume_reading(heard.line)
    heard.serve()
    assert heard.numbers == [1]


def test_a_paused_line_is_written_to(heard: Heard) -> None:
    heard.loop.pause_reading(heard.line)
    heard.mine.post({"n": 1})
    for number in range(4):
        heard.loop.post(heard.line, {"n": number, "data": bytes(_MIB)})
    assert heard.line.kept
    received: list[Any] = []
    while heard.line.kept or len(received) < 4:
        heard.serve()
        received += heard.mine.receive_nowait()
    assert [message["n"] for message, _ in received] == list(range(4))
    assert heard.numbers == []
    heard.loop.resume_reading(heard.line)
    heard.serve()
    assert heard.numbers == [1]


@pytest.mark.parametrize("kept", [0, 4])
def test_the_end_of_a_paused_line_is_known_when_it_is_resumed(
    heard: Heard, kept: int
) -> None:
    heard.loop.pause_reading(heard.line)
    for number in range(kept):
        heard.loop.post(heard.line, {"n": number, "data": bytes(_MIB)})
    heard.mine.post({"n": 1})
    heard.mine.close()
    heard.serve()
    assert heard.sleeps()
    heard.loop.post(heard.line, {"n": 5})
    assert heard.sleeps()
    assert (heard.numbers, heard.closed) == ([], 0)
    heard.loop.resume_reading(heard.line)
    heard.serve()
    assert (heard.numbers, heard.closed) == ([1], 1)


def test_whoever_reads_a_paused_line_to_its_end_hears_all(heard: Heard) -> None:
    heard.loop.pause_reading(heard.line)
    heard.mine.post({"n": 1})
    heard.mine.close()
    heard.loop.read_to_the_end(heard.line)
    assert (heard.numbers, heard.closed) == ([1], 1)
    heard.loop.resume_reading(heard.line)
    assert heard.sleeps()
