# SPDX-License-Identifier: MIT
"""Lines of actors on their way to readers that take them slowly."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from mooactor.control.messages import Message
from mooactor.host import history
from mooactor.host.history import History, Printer
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

    def post(self, message: Message) -> None:
        self.under_way.append(message)

    def drain(self) -> None:
        self.read += self.under_way
        self.under_way.clear()

    def lines(self) -> list[str]:
        return [m.line for m in self.read if isinstance(m, Line)]


class Kept(History):
    """A history whose timers run when they are told to."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []
        super().__init__(lambda delay, action: self.due.append(action))

    def say(self, number: int) -> None:
        self.add(1, TALKER, [f"{number:05d}{LINE}".encode()])

    def run(self) -> None:
        due, self.due = self.due, []
        for action in due:
            action()


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    monkeypatch.setattr(history, "_MOST_QUEUED", 10_000)
    monkeypatch.setattr(history, "_MOST_WAITING", 50_000)
    return Kept()


def numbers(channel: Slow) -> list[int]:
    return [int(line[:5]) for line in channel.lines()]


def until_read(kept: Kept, channel: Slow) -> None:
    while kept.due or channel.under_way:
        assert channel.queued < 15_000
        channel.drain()
        kept.run()


def test_all_that_was_kept_reaches_a_reader_piece_by_piece(kept: Kept) -> None:
    for number in range(500):
        kept.say(number)
    channel: Any = Slow()
    reader = kept.read("t", channel)
    reader.end(found=True)
    kept.send()
    until_read(kept, channel)
    assert numbers(channel) == list(range(500))
    assert channel.read[-1] == End(True)
    assert len(channel.read) == 501


def test_a_line_says_whose_it_is_and_which_other_host_it_is_of(kept: Kept) -> None:
    channel: Any = Slow()
    kept.add(1, TALKER, [b"here"])
    kept.add(2, Printer("Talker:t", 9), [b"there"], "b")
    kept.read("t", channel).end(found=True)
    kept.send()
    assert list(channel.under_way)[:2] == [
        Line("here", 1, "Talker:t", 4711, "00ff", 2),
        # Of an actor that is not known any more.
        Line("there", 2, "Talker:t", 9, host="b"),
    ]
    assert kept.actors("t") == {"00ff"} and kept.actors("u") == set()


def test_a_slow_reader_that_follows_hears_how_many_lines_it_misses(kept: Kept) -> None:
    channel: Any = Slow()
    kept.say(0)
    kept.read("t", channel).follows = True
    kept.send()
    for number in range(1, 500):
        kept.say(number)  # nobody reads
    until_read(kept, channel)
    (gap,) = (m for m in channel.read if isinstance(m, LeftOut))
    at = channel.read.index(gap)
    before = [int(m.line[:5]) for m in channel.read[:at]]
    after = [int(m.line[:5]) for m in channel.read[at + 1 :]]
    assert before == list(range(len(before))) and after[-1] == 499
    assert gap.lines == after[0] - before[-1] - 1 > 0
    assert after == list(range(after[0], 500))
    for number in range(500, 510):
        kept.say(number)
        until_read(kept, channel)
    assert numbers(channel)[-10:] == list(range(500, 510))


def test_the_end_of_an_actor_comes_after_all_of_its_lines(kept: Kept) -> None:
    channel: Any = Slow()
    kept.read("t", channel).follows = True
    for number in range(40):
        kept.say(number)
    kept.end("Talker:t", "killed", [])
    assert not kept.followed
    until_read(kept, channel)
    assert numbers(channel) == list(range(40))
    assert channel.read[-1].why == "killed"


def printer_of(actor: int) -> Printer:
    return Printer(f"Bar:b{actor}", 1000 + actor)


def all_of(kept: Kept, name: str) -> list[str]:
    channel: Any = Slow()
    kept.read(name, channel).end(found=True)
    kept.send()
    until_read(kept, channel)
    return channel.lines()


def test_long_lines_have_a_bound_in_bytes(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "_MOST_OF_ONE", 20_000)
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
    assert all(history.is_meant(label, name) for name in meant)
    assert not any(history.is_meant(label, name) for name in others)
