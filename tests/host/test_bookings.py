# SPDX-License-Identifier: MIT
"""Groups of several sessions that want the same hosts. See `LoneHome`."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mooactor.host.protocol import Leave, Opened, Reserve, Reserved
from mooactor.host.resources import Devices, Resources
from mooactor.process.needs import Amount, Needs
from mooactor.process.protocol import Reply, Unreserve
from mooactor.process.protocol import Reserve as Places
from tests.host.lone_homes import TOTAL, LoneHome, Wire

HOSTS = "abc"


class Shared:
    """Hosts with an account each, and the messages between them and the homes, which
    arrive in order, each at a time of its own."""

    def __init__(self, rng: random.Random, homes: list[LoneHome]) -> None:
        self.rng, self.homes = rng, homes
        self.accounts = {host: Resources(TOTAL, Devices(["0"])) for host in HOSTS}
        self._read: dict[Wire, int] = {}
        self._answers: dict[Wire, list[dict[str, Any]]] = {}
        self.answers: dict[int, Any] = {}  # by the first actor of a request
        self._ids = 0

    def ask(self, home: LoneHome, count: int, cpus: float) -> list[int]:
        ids = [(self._ids + number) << 16 for number in range(1, count + 1)]
        self._ids += count
        home.ask(Places(ids, Needs(Amount(cpus)), rid=ids[0]))
        return ids

    def deliver(self) -> bool:
        """One message arrives, if there is any."""
        ready: list[Callable[[], None]] = []
        for mark, home in enumerate(self.homes):
            for host, wires in home.hosts.wires.items():
                (wire,) = wires
                if self._read.get(wire, 0) < len(wire.sent):
                    ready.append(lambda w=wire, h=host, m=mark: self._at(h, m, w))
                if self._answers.get(wire):
                    ready.append(lambda h=host, w=wire, o=home: self._back(o, h, w))
        if ready:
            self.rng.choice(ready)()
        self._hear()
        return bool(ready)

    def _at(self, host: str, mark: int, wire: Wire) -> None:
        """As `Guest` does."""
        message = wire.sent[self._read.setdefault(wire, 0)]
        self._read[wire] += 1
        account = self.accounts[host]
        if isinstance(message, Leave):
            account.give_back((str(mark), message.holder))
        elif isinstance(message, Reserve):
            holders = [(str(mark), one) for one in message.holders]
            full = account.take_all(holders, message.needs) < len(holders)
            answer = Reserved(message.number, "full" if full else "")
            self._answers.setdefault(wire, []).append(answer)

    def _back(self, home: LoneHome, host: str, wire: Wire) -> None:
        home.hear(host, self._answers[wire].pop(0))

    def _hear(self) -> None:
        for home in self.homes:
            for message in home.told():
                assert isinstance(message, Reply)
                assert message.rid not in self.answers
                self.answers[message.rid] = message.value

    def holds(self, home: LoneHome, ids: list[int]) -> list[bool]:
        """Whether each of them is reserved for at its host."""
        mark = str(self.homes.index(home))
        where = [home.sites.host_of(one) for one in ids]
        held = {host: account._reserved for host, account in self.accounts.items()}
        return [
            host in held and (mark, one) in held[host]
            for host, one in zip(where, ids, strict=True)
        ]


@contextlib.contextmanager
def three_homes(tmp_path: Path) -> Iterator[list[LoneHome]]:
    made = [LoneHome(tmp_path, HOSTS, here=f"d{number}") for number in range(3)]
    yield made
    for home in made:
        home.close()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[LoneHome]:
    with three_homes(tmp_path) as homes:
        yield homes[0]


def test_all_of_a_group_is_reserved_or_nothing(tmp_path: Path) -> None:
    for seed in range(40):
        with three_homes(tmp_path) as homes:
            reserve_at_random(homes, random.Random(seed))


def reserve_at_random(homes: list[LoneHome], rng: random.Random) -> None:
    shared = Shared(rng, homes)
    asked: dict[int, tuple[LoneHome, list[int]]] = {}
    got: list[int] = []
    for _ in range(150):
        home = rng.choice(homes)
        if rng.random() < 0.1:
            ids = shared.ask(home, rng.randint(1, 6), rng.choice([0.5, 1.0, 2.0]))
            asked[ids[0]] = home, ids
        elif rng.random() < 0.1 and asked:
            first = rng.choice(list(asked))  # answered, or not yet
            home, ids = asked.pop(first)
            home.ask(Unreserve(ids))
        else:
            shared.deliver()
        for first, (home, ids) in asked.items():
            if shared.answers.get(first):
                got.append(first)
                assert all(shared.holds(home, ids))
    while shared.deliver():
        pass
    for first, (home, ids) in asked.items():
        assert first in shared.answers
        assert set(shared.holds(home, ids)) == {shared.answers[first] is not None}
        home.ask(Unreserve(ids))
    while shared.deliver():
        pass
    assert got and not any(a.reserved() for a in shared.accounts.values())


def test_one_of_several_that_want_all_gets_it(tmp_path: Path) -> None:
    for seed in range(40):
        with three_homes(tmp_path) as homes:
            shared = Shared(random.Random(seed), homes)
            groups = [shared.ask(home, 3 * int(TOTAL.cpus), 1.0) for home in homes]
            while shared.deliver():
                pass
            won = [shared.answers[ids[0]] is not None for ids in groups]
            assert sum(won) == 1
            for home, ids, has in zip(homes, groups, won, strict=True):
                assert set(shared.holds(home, ids)) == {has}


def test_a_host_that_cannot_take_part_is_passed_over(
    home: LoneHome, capfd: Any
) -> None:
    home.ask(Places([1 << 16, 2 << 16], Needs(Amount(2.0)), rid=1))
    assert [home.sites.host_of(one << 16) for one in (1, 2)] == ["a", "b"]
    home.agree("a")
    why = "host b cannot take part: it has no directory /x"
    home.hear("b", Opened(why))
    assert [home.sites.host_of(one << 16) for one in (1, 2)] == ["a", "c"]
    assert not home.told()
    home.agree("a"), home.agree("c")
    (reply,) = home.told()
    assert isinstance(reply, Reply) and reply.value == ["a", "c"]
    assert why in capfd.readouterr().err


def test_a_host_that_dies_after_it_has_reserved_is_passed_over(
    home: LoneHome,
) -> None:
    home.ask(Places([1 << 16, 2 << 16], Needs(Amount(2.0)), rid=1))
    home.agree("a")
    home.hosts.names.discard("a")
    home.lose("a")
    home.agree("b")
    assert [home.sites.host_of(one << 16) for one in (1, 2)] == ["b", "c"]
    home.agree("b"), home.agree("c")
    (reply,) = home.told()
    assert isinstance(reply, Reply) and reply.value == ["b", "c"]
    assert home.wire("b").of(Leave) == [Leave(2 << 16)]


def test_places_are_asked_for_once(home: LoneHome) -> None:
    for ids in ([1 << 16, 1 << 16], [2 << 16], [2 << 16]):
        home.ask(Places(ids, Needs(Amount(1.0)), rid=1))
    assert [home.sites.is_placed(one << 16) for one in (1, 2)] == [False, True]
    home.agree("a")
    first, *others = home.told()
    assert "no new actors" in str(first) and len(others) == 2
