# SPDX-License-Identifier: MIT
"""The guests of one agent, and the account that they share: without any process."""

from __future__ import annotations

import os
import random
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mooactor.control.lifeline import Lifeline
from mooactor.control.messages import Message, encode
from mooactor.control.reach import Reach
from mooactor.host import guest as guests
from mooactor.host.daemon import HostDaemon, Offer
from mooactor.host.eventloop import EventLoop
from mooactor.host.guest import FromHome
from mooactor.host.output import LineReader
from mooactor.host.protocol import Close, Denied, Leave, OfAProcess, Open, Start
from mooactor.host.resources import Cores, Devices, Resources
from mooactor.process.environment import Place
from mooactor.process.needs import Amount
from mooactor.process.protocol import Life
from mooactor.tensors.network import Network
from tests.host.test_relays import Slow

TOTAL = Amount(8.0, 2.0, 8e9)
REACH = Reach("127.0.0.1", "127.0.0.1", "b")


class LoneDaemon(HostDaemon):
    """A daemon without a network, whose guests have no zygote."""

    def __init__(self) -> None:
        self.offer = Offer("b", [], b"", REACH)
        self.loop = EventLoop()
        self.resources = Resources(TOTAL, Devices(["0", "1"]), Cores(range(8)))
        self.reaper: Any = None
        self._membership: Any = SimpleNamespace(changed=lambda: None)
        self._stop = lambda: None
        self._guests = set()

    def accept(self) -> Home:
        """A home has opened a channel."""
        channel: Any = Slow()
        return Home(channel, self._accept(channel))

    def close(self) -> None:
        for guest in list(self._guests):
            guest.close()
        self.loop._selector.close()


class Home:
    """A home's end of a channel: what it says, and what its actors have reserved."""

    def __init__(self, channel: Any, listener: FromHome) -> None:
        self.channel, self._listener = channel, listener
        self.mark = ""
        self.has: dict[int, Amount] = {}
        self._numbers = 0

    @property
    def is_open(self) -> bool:
        return bool(self.channel.is_open)

    def says(self, message: Message) -> None:
        if self.is_open:  # else a channel hands nothing on
            self._listener.handle(self.channel, encode(message))

    def opens(self, mark: str, cwd: str = "/") -> None:
        self.mark = mark
        place, python = Place(os.fsencode(cwd), []), os.fsencode(sys.executable)
        self.says(Open(mark, place, python, [], []))

    def starts(self, actor: int, needs: Amount) -> None:
        self._numbers += 1
        life = Life(actor << 16, 0, "A", {}, 1, b"", b"", 1, Network())
        self.says(Start(self._numbers, life, needs, []))
        if needs and not self.heard(Denied, self._numbers):
            self.has.setdefault(actor, needs)

    def leaves(self, actor: int) -> None:
        self.has.pop(actor, None)
        self.says(Leave(actor << 16))

    def is_lost(self) -> None:
        if self.is_open:
            self._listener.channel_closed(self.channel, "nothing was heard of it")

    def heard(self, kind: type[OfAProcess], number: int) -> bool:
        return any(
            isinstance(one, kind) and one.number == number
            for one in self.channel.messages
        )


@dataclass(eq=False)
class Process:
    """One that is not born yet."""

    line: Lifeline
    number: int
    pid: int | None = None
    readers: tuple[LineReader, ...] = ()


class NoSite:
    """In the place of `site.Site`: processes are the ends of their lines."""

    def __init__(self, host: str, loop: EventLoop, *_: Any, **__: Any) -> None:
        self.family: Any = None
        self._loop = loop
        self._ends: list[tuple[Process, Lifeline]] = []

    def configure(self, *_: Any) -> None: ...
    def exec_zygote(self) -> None: ...

    def get(self, number: int) -> None:
        return None

    def start(self, life: Any, fds: Any, number: int) -> Process:
        ours, theirs = socket.socketpair()
        process = Process(Lifeline(ours), number)
        self._ends.append((process, Lifeline(theirs)))
        self._loop.watch_line(process.line, self.family)
        return process

    def close(self) -> None:
        for process, mine in self._ends:
            self._loop.close_line(process.line)
            process.line.close()
            mine.close()


@pytest.fixture
def lone_daemons(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[[], LoneDaemon]]:
    monkeypatch.setattr(guests, "Site", NoSite)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    made: list[LoneDaemon] = []

    def make() -> LoneDaemon:
        made.append(LoneDaemon())
        return made[-1]

    yield make
    for daemon in made:
        daemon.close()


@pytest.fixture
def daemon(lone_daemons: Callable[[], LoneDaemon]) -> LoneDaemon:
    return lone_daemons()


def test_a_session_that_returns_keeps_what_it_reserves_then(daemon: LoneDaemon) -> None:
    """The agent stood still: its first guest of the session is there still."""
    first, second, other = daemon.accept(), daemon.accept(), daemon.accept()
    first.opens("one")
    first.starts(1, Amount(8.0, 2.0))
    other.opens("other")

    second.opens("one")
    second.starts(1, Amount(8.0, 2.0))

    assert not first.is_open and second.is_open and other.is_open
    assert daemon.resources.reserved() == Amount(8.0, 2.0)
    first.is_lost()
    assert daemon.resources.reserved() == Amount(8.0, 2.0)
    other.starts(1, Amount(1.0))
    assert other.heard(Denied, 1)


def needs_of(rng: random.Random) -> Amount:
    return Amount(
        rng.choice([0.0, 0.5, 1.0, 2.0, 4.0]),
        rng.choice([0.0, 0.0, 0.5, 1.0]),
        rng.choice([0.0, 1e9]),
    )


def test_random_guests_give_back_what_they_have_reserved_and_nothing_else(
    lone_daemons: Callable[[], LoneDaemon],
) -> None:
    for seed in range(40):
        come_and_go(lone_daemons(), random.Random(seed))


def come_and_go(daemon: LoneDaemon, rng: random.Random) -> None:
    account, most = daemon.resources, 0
    homes: list[Home] = []
    for _ in range(150):
        step = rng.random()
        if step < 0.15 or not homes:
            homes.append(daemon.accept())
            homes[-1].opens(f"session {rng.randrange(4)}")
        home = rng.choice(homes)
        if step < 0.6:
            home.starts(rng.randrange(1, 6), needs_of(rng))
        elif step < 0.8:
            home.leaves(rng.randrange(1, 6))
        elif step < 0.9:
            home.is_lost()
        else:
            home.says(Close())
        homes = [one for one in homes if one.is_open]

        marks = [one.mark for one in homes]
        assert len(set(marks)) == len(marks)
        most = max(most, len(marks))
        # The slow answer: each open channel's reservations, and no others.
        expected = [a for one in homes for a in one.has.values() if a]
        assert account.reserved() == sum(expected, Amount())
        assert account.reserved().fits(account.total)
        taken = account.total.gpus - sum(account.devices.free)
        assert taken == pytest.approx(account.reserved().gpus)
        for one in homes:
            assert account.reserved(one.mark) == sum(one.has.values(), Amount())

    assert most > 1
    for one in homes:
        one.is_lost()
    assert not account.reserved() and account.devices.free == [1.0, 1.0]
    assert account.cores.take("all", 8) == list(range(8))
