# SPDX-License-Identifier: MIT
"""Lines of actors on their way to readers that take them slowly."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from mooactor.control.messages import Message
from mooactor.host import desk
from mooactor.host.desk import History
from mooactor.host.output import Printer
from mooactor.host.protocol import End, LeftOut, Line

LINE = "x" * 1000
TALKER = Printer("Talker:t", 4711, "00ff", 2)


class Slow:
    """A channel that hands its messages on when it is told to."""

    def __init__(self) -> None:
        self.under_way: deque[Message] = deque()
        self.read: list[Message] = []

    @property
    def queued(self) -> int:
        return sum(len(m.line) for m in self.under_way if isinstance(m, Line))

    def post(self, message: Message, *, patient: bool = False) -> None:
        assert patient
        self.under_way.append(message)

    def drain(self) -> None:
        self.read += self.under_way
        self.under_way.clear()

    def lines(self) -> list[str]:
        return [m.line for m in self.read if isinstance(m, Line)]


class Kept(History):
    def say(self, number: int) -> None:
        self.add(1, TALKER, [f"{number:05d}{LINE}".encode()])


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    monkeypatch.setattr(desk, "_MOST_QUEUED", 10_000)
    return Kept()


def numbers(channel: Slow) -> list[int]:
    return [int(line[:5]) for line in channel.lines()]


def test_all_that_was_kept_reaches_a_reader(kept: Kept) -> None:
    for number in range(500):
        kept.say(number)
    channel: Any = Slow()
    kept.read("t", channel).end(found=True)
    channel.drain()
    assert numbers(channel) == list(range(500))
    assert channel.read[-1] == End(True)
    assert len(channel.read) == 501


def test_a_line_says_whose_it_is_and_which_other_host_it_is_of(kept: Kept) -> None:
    channel: Any = Slow()
    kept.add(1, TALKER, [b"here"])
    kept.add(2, Printer("Talker:t", 9, host="b"), [b"there"])
    kept.read("t", channel).end(found=True)
    assert list(channel.under_way)[:2] == [
        Line("here", 1, "Talker:t", 4711, "00ff", 2),
        # Of an actor that is not known any more.
        Line("there", 2, "Talker:t", 9, host="b"),
    ]


def test_a_slow_reader_that_follows_hears_how_many_lines_it_misses(kept: Kept) -> None:
    channel: Any = Slow()
    kept.say(0)
    kept.read("t", channel).follows = True
    for number in range(1, 500):
        kept.say(number)  # nobody reads
    channel.drain()
    before = numbers(channel)
    assert before == list(range(len(before))) and 10 <= len(before) < 15
    for number in range(500, 510):
        kept.say(number)
        channel.drain()
    assert numbers(channel) == [*before, *range(500, 510)]
    assert channel.read[len(before)] == LeftOut(500 - len(before))


def test_the_end_of_an_actor_comes_after_all_of_its_lines(kept: Kept) -> None:
    channel: Any = Slow()
    kept.read("t", channel).follows = True
    for number in range(9):
        kept.say(number)
    kept.end("Talker:t", "killed", [])
    assert not kept.followed
    channel.drain()
    assert numbers(channel) == list(range(9))
    assert channel.read[-1].why == "killed"


def printer_of(actor: int) -> Printer:
    return Printer(f"Bar:b{actor}", 1000 + actor)


def all_of(kept: Kept, name: str) -> list[str]:
    channel: Any = Slow()
    kept.read(name, channel).end(found=True)
    channel.drain()
    return channel.lines()


def test_long_lines_have_a_bound_in_bytes(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "_MOST_OF_ONE", 20_000)
    for number in range(100):
        kept.say(number)
        kept.add(1, printer_of(1), [b"short"])
    read = all_of(kept, "t")
    assert 15 < len(read) < 20 and int(read[-1][:5]) == 99
    assert len(all_of(kept, "b1")) == 100
    kept.add(1, printer_of(1), [b"x" * 30_000])  # more than there is room for
    assert all_of(kept, "b1") == []


@pytest.mark.parametrize(
    ("label", "meant", "others"),
    [
        ("Bar:w", ["w", "Bar:w"], ["", "Bar", "r:w"]),
        ("Bar:x:w", ["x:w", "Bar:x:w"], ["w"]),
        ("Bar", ["Bar"], ["", "r"]),
    ],
)
def test_an_actor_is_meant_by_its_whole_name(
    label: str, meant: list[str], others: list[str]
) -> None:
    assert all(desk.is_meant(label, name) for name in meant)
    assert not any(desk.is_meant(label, name) for name in others)
