# SPDX-License-Identifier: MIT
"""The broker's memory as a state machine: no socket, no clock."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mooactor.cluster.registry import Announcement, Registry, differences, read
from mooactor.control.messages import Malformed, Message, encode
from mooactor.host.members import (
    AT_A_TIME,
    MAX_BYTES,
    TO_BROKER,
    Changed,
    Gone,
    Members,
    Row,
    row_of,
)
from mooactor.host.protocol import Refused
from tests.cluster.rows import announce, announced, fields


class Watchers:
    """Those who watch a registry, and all that each was told."""

    def __init__(self) -> None:
        self.told: dict[Any, list[Message]] = {}

    def post(self, watcher: Any, message: Message) -> None:
        self.told.setdefault(watcher, []).append(message)

    def view(self, watcher: Any) -> list[tuple[str, str]]:
        """Name and node of each, as this watcher would have them by now."""
        rows: dict[tuple[str, str], Row] = {}
        for message in self.told[watcher]:
            if isinstance(message, Members):
                found = (known(data) for data, _ in message.rows)
                rows = {(row.name, row.id): row for row in found}
            elif isinstance(message, Changed):
                found = known(message.row)
                assert rows.get((found.name, found.id)) != found  # it is news
                rows[found.name, found.id] = found
            elif isinstance(message, Gone):
                del rows[message.name, message.id]
        return sorted(rows)


def known(data: bytes) -> Row:
    row = row_of(data)
    assert row is not None
    return row


@pytest.fixture
def watchers() -> Watchers:
    return Watchers()


@pytest.fixture
def registry(watchers: Watchers) -> Registry:
    return Registry(watchers.post)


def listed(registry: Registry) -> list[Row]:
    return [known(data) for data, _ in registry.rows()]


def members(registry: Registry) -> list[tuple[str, str]]:
    """Name and node of each."""
    return sorted((found.name, found.id) for found in listed(registry))


def loads(registry: Registry) -> list[float | None]:
    return [load for _, load in registry.rows()]


def names(registry: Registry) -> list[str]:
    return [found.name for found in listed(registry)]


def test_a_load_is_kept_for_those_who_ask_and_no_news_for_watchers(
    registry: Registry, watchers: Watchers
) -> None:
    registry.watch("w")
    registry.announce(2, announced("b"))
    registry.announce(1, announced("a", load=0.25))
    assert loads(registry) == [0.25, None]
    registry.still(2, 3.0)
    registry.announce(1, announced("a", load=7))
    assert loads(registry) == [7.0, 3.0]
    assert list(map(type, watchers.told["w"][1:])) == [Changed, Changed]
    registry.still(1)
    assert loads(registry) == [None, 3.0]


def test_a_load_that_is_none_is_refused() -> None:
    for load in (-1, float("nan"), float("inf"), 1e7, "1", True, [1]):
        message = {"type": "Announce", "row": announce("a").row, "load": load}
        with pytest.raises(Malformed, match="load"):
            TO_BROKER.decode(encode(message))


def test_homes_may_share_a_name_with_each_other_and_with_a_host(
    registry: Registry,
) -> None:
    registry.announce(1, announced("a"))
    for member in (2, 3):
        home = announced("a", f"home-{member}", kind="home")
        assert registry.announce(member, home) is None
    assert len(registry) == 3


def test_after_any_history_every_watcher_has_the_registrys_rows() -> None:
    for seed in range(10):
        live(random.Random(seed))


def live(rng: random.Random) -> None:
    """A history, beside an obvious model of it."""
    watchers = Watchers()
    registry = Registry(watchers.post)
    known: dict[int, tuple[str, str]] = {}  # name and node, by member
    for step in range(400):
        member = rng.randrange(8)
        name, node = f"n{rng.randrange(4)}", f"x{rng.randrange(5)}"
        action = rng.choice(["announce", "still", "leave", "watch"])
        if action == "announce":
            new = announced(name, node, actors=rng.randrange(2))
            taken = {m for m, (n, i) in known.items() if n == name and i != node}
            refused = registry.announce(member, new)
            assert bool(refused) == bool(taken - {member})
            known.pop(member, None)
            if not refused:
                same = (name, node)
                known = {m: kept for m, kept in known.items() if kept != same}
                known[member] = (name, node)
        elif action == "still":
            assert registry.still(member) == (member in known)
        elif action == "leave":
            assert (registry.leave(member, "it left") is None) == (member not in known)
            known.pop(member, None)
        elif action == "watch" and step % 40 == 0:
            registry.watch(f"w{step}")
        assert members(registry) == sorted(known.values())
    registry.watch("last")
    for watcher, seen in watchers.told.items():
        kinds = list(map(type, seen))
        assert kinds.count(Members) == 1 == (kinds[0] is Members)
        assert watchers.view(watcher) == members(registry)


def test_many_rows_come_in_several_messages(
    registry: Registry, watchers: Watchers
) -> None:
    count = 2 * AT_A_TIME + 1
    for number in range(count):
        registry.announce(number, announced(f"h{number:04}"))
    registry.watch("w")
    told = [m for m in watchers.told["w"] if isinstance(m, Members)]
    assert [(len(m.rows), m.more) for m in told] == [
        (AT_A_TIME, True),
        (AT_A_TIME, True),
        (1, False),
    ]
    rows = [known(data) for m in told for data, _ in m.rows]
    assert [found.name for found in rows] == names(registry)


# -- rows ------------------------------------------------------------------


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": 5}, r"Expected `str`, got `int` - at `\$.name`"),
    ({"name": "a\nb"}, "is no name"),
    ({"name": "x" * 300}, "length <= 255"),
    ({"kind": "broker"}, r"\$.kind"),
    ({"cpus": -1}, r">= 0 - at `\$.cpus`"),
    ({"labels": {str(n): "" for n in range(65)}}, "length <= 64"),
    ({"free": {"cpus": float("nan")}}, r"\$.free.cpus"),
    ({"address": "tcp://*:1"}, r"address=.tcp://\*:1. is none"),
    ({"actors": True}, r"\$.actors"),
]


def test_a_wrong_row_is_refused_with_the_field() -> None:
    for change, why in WRONG:
        with pytest.raises(Refused, match=why):
            read(announce("a", **change))
    message = encode(announce("a", more="x" * MAX_BYTES))
    with pytest.raises(Malformed, match=r"\$.row"):
        TO_BROKER.decode(message)


def test_another_wire_is_refused_with_both_versions() -> None:
    versions = {"mooactor": "9.0", "python": "3.11", "torch": None, "wire": 99}
    with pytest.raises(Refused, match=r"mooactor '9\.0'.*version 99 of the wire.*same"):
        read(announce("a", versions=versions, cpus="of a later version"))


def test_versions_that_differ_are_named_with_their_hosts() -> None:
    def runs(name: str, **versions: str | None) -> Announcement:
        return announced(name, versions={**fields("a")["versions"], **versions})

    others = [runs(name, torch="2.4") for name in "bcdef"]
    others.append(runs("g", python="3.12.1"))
    assert differences(runs("a", torch="2.13"), others) == [
        "python is 3.11.7 here, 3.12.1 on g",
        "torch is 2.13 here, 2.4 on b, c, d and 2 more",
        "torch is 2.13 here, None on g",
    ]
    assert differences(runs("a"), [runs("b")]) == []
