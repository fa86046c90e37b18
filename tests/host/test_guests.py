# SPDX-License-Identifier: MIT
"""What a guest does about its processes' lines, without any process."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mooactor.control.lifeline import Lifeline
from mooactor.host import relayed
from mooactor.host.devices import Devices
from mooactor.host.eventloop import EventLoop
from mooactor.host.guest import Guest
from mooactor.host.output import MOST_LINES, LineReader
from mooactor.host.parcels import file_of
from mooactor.host.resources import Amount, Resources
from mooactor.host.site import End
from tests.host.test_relayed import Slow

NOTHING = {"cpus": 0.0, "gpus": 0.0, "memory": 0.0}
_MIB = 1 << 20


@dataclass(eq=False)
class Process:
    """One that is not born yet."""

    line: Lifeline
    pid: int | None = None
    readers: tuple[LineReader, ...] = ()


class Site:
    """In the place of `site.Site`: processes are the ends of their lines."""

    def __init__(self, guest: Any, loop: EventLoop) -> None:
        self.guest, self.loop = guest, loop
        self.ends: list[tuple[Process, Lifeline]] = []

    def start(self, life: Any, fds: Any, tries: int) -> Process:
        ours, theirs = socket.socketpair()
        process = Process(Lifeline(ours))
        self.ends.append((process, Lifeline(theirs)))
        self.loop.watch_line(process.line, self.guest)
        return process

    def close(self) -> None:
        for process, mine in self.ends:
            self.loop.close_line(process.line)
            process.line.close()
            mine.close()


class LoneGuest:
    """A guest whose channel sends when it is told."""

    def __init__(self, directory: str) -> None:
        self.loop, self.channel = EventLoop(), Slow()
        resources = Resources(Amount(4.0), Devices([]))
        channel: Any = self.channel
        reaper: Any = None
        self.guest: Any = Guest(
            "b",
            channel,
            self.loop,
            reaper,
            resources,
            {},
            lambda: None,
            lambda guest, mark: None,
            lambda guest: None,
        )
        self.site: Any = Site(self.guest, self.loop)
        self.guest._site, self.guest._directory = self.site, directory

    def start(self, number: int) -> tuple[Process, Lifeline]:
        """A process, and its end of its line."""
        about = {"actor_id": number << 16, "incarnation": 0, "label": "A", "env": {}}
        self.guest.told(
            {
                "what": "start",
                "number": number,
                "holder": number,
                "needs": NOTHING,
                "life": about,
            }
        )
        return self.site.ends[-1]

    def of(self, number: int) -> list[str]:
        return [one["what"] for one in self.channel.messages if one["number"] == number]


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[LoneGuest]:
    made = LoneGuest(str(tmp_path))
    yield made
    made.guest.close()
    made.loop._selector.close()


def test_the_line_of_a_process_that_the_home_closes_is_nobodys_any_more(
    lone: LoneGuest,
) -> None:
    process, _ = lone.start(1)
    number = process.line.fileno()
    lone.guest.told({"what": "closed", "number": 1})
    assert process.line.fileno() == -1
    other, mine = lone.start(2)  # its line has the number of the first one
    assert number in (other.line.fileno(), mine.fileno())
    mine.post({"op": "ready"})
    lone.loop.serve(0.0)
    assert lone.of(2) == ["line"]


def test_the_end_of_a_process_comes_behind_all_that_it_has_said(
    lone: LoneGuest,
) -> None:
    process, mine = lone.start(1)
    other, _ = lone.start(2)
    for _ in range(4):
        parcel = file_of(bytes(3 * _MIB))
        mine.post({"op": "spawn"}, [parcel])
        os.close(parcel)
    mine.close()
    lone.loop.read_to_the_end(process.line)
    for one in (process, other):
        lone.guest.exited(one, End(9, (), False))
    assert lone.of(1) == ["line"]
    assert lone.of(2) == ["exited"]  # it has said nothing that waits
    while len(lone.channel.messages) < 7:
        lone.channel.send()
        lone.loop.serve(None)
    assert lone.of(1) == ["line"] * 4 + ["closed", "exited"]


def test_the_end_of_a_process_comes_behind_all_that_it_has_printed(
    lone: LoneGuest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relayed, "_MOST_PRINTED", 1)
    talker, _ = lone.start(1)
    silent, _ = lone.start(2)
    pipe, end = os.pipe()
    reader = lone.guest._output.begin(2, pipe, b"(A) ")
    talker.readers = (reader,)
    os.write(end, b"line\n" * 3 * MOST_LINES + b"the end")
    os.close(end)
    lone.guest._output.end(reader)
    for one in (talker, silent):
        lone.guest.exited(one, End(9, tuple(reader.tail), False))
    kinds = ["log", "exited"]
    assert [one["what"] for one in lone.channel.messages] == kinds
    assert lone.channel.messages[-1]["number"] == 2  # it has printed nothing
    while len(lone.channel.messages) < 6:
        lone.channel.send()
        lone.loop.serve(None)
    assert [one["what"] for one in lone.channel.messages] == kinds + ["log"] * 3 + [
        "exited"
    ]
    assert lone.channel.messages[-2]["lines"] == b"the end"
    assert lone.channel.messages[-1]["stderr"][-1] == "the end"
