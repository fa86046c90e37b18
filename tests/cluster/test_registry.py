# SPDX-License-Identifier: MIT
"""The broker's memory as a state machine: no socket, no clock."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mooactor.cluster.announcement import MAX_BYTES, Announcement, differences, read
from mooactor.cluster.registry import Registry
from mooactor.control import plain
from mooactor.host.fields import Refused
from mooactor.host.rows import AT_A_TIME, unpack, unpack_all, unpack_answer
from tests.cluster.rows import announced, row


class Watchers:
    """Those who watch a registry, and all that each was told."""

    def __init__(self) -> None:
        self.told: dict[Any, list[dict[str, Any]]] = {}
        self.on_post: Any = lambda watcher, message: None

    def post(self, watcher: Any, message: dict[str, Any]) -> None:
        told = dict(message)
        if "row" in told:
            told["row"] = unpack(told["row"])
        if "rows" in told:
            told["rows"] = unpack_all(told["rows"])
        self.told.setdefault(watcher, []).append(told)
        self.on_post(watcher, message)

    def view(self, watcher: Any) -> dict[str, dict[str, Any]]:
        """The rows by id, as this watcher would have them by now."""
        rows: dict[str, dict[str, Any]] = {}
        for message in self.told[watcher]:
            if message["ev"] == "hosts":
                rows = {found["id"]: found for found in message["rows"]}
            elif message["ev"] == "host":
                rows[message["row"]["id"]] = message["row"]
            else:
                assert rows.pop(message["id"])["name"] == message["name"]
        return rows


@pytest.fixture
def watchers() -> Watchers:
    return Watchers()


@pytest.fixture
def registry(watchers: Watchers) -> Registry:
    return Registry(watchers.post, expiry_s=3.0)


def listed(registry: Registry) -> list[dict[str, Any]]:
    return unpack_all(registry.rows())


def names(registry: Registry) -> list[str]:
    return [found["name"] for found in listed(registry)]


def test_members_are_listed_by_name(registry: Registry) -> None:
    for name in "cab":
        assert registry.announce(name, announced(name), 0.0) is None
    assert names(registry) == ["a", "b", "c"]


def test_a_change_is_told_once_and_a_repetition_never(
    registry: Registry, watchers: Watchers
) -> None:
    registry.watch("w")
    registry.announce(1, announced("a"), 0.0)
    registry.announce(1, announced("a"), 1.0)
    registry.still(1, 2.0)
    registry.announce(1, announced("a", actors=1), 3.0)
    assert [message["ev"] for message in watchers.told["w"]] == [
        "hosts",
        "host",
        "host",
    ]
    assert watchers.told["w"][-1]["row"]["actors"] == 1


def test_a_load_is_kept_for_those_who_ask_and_no_news_for_watchers(
    registry: Registry, watchers: Watchers
) -> None:
    registry.watch("w")
    registry.announce(2, announced("b"), 0.0)
    registry.announce(1, announced("a", load=0.25), 0.0)
    assert registry.rows_and_loads()[1] == [0.25, None]
    registry.still(2, 1.0, 3.0)
    registry.announce(1, announced("a", load=7), 1.0)
    assert registry.rows_and_loads() == (registry.rows(), [7.0, 3.0])
    assert [message["ev"] for message in watchers.told["w"][1:]] == ["host", "host"]
    registry.still(1, 2.0)
    assert registry.rows_and_loads()[1] == [None, 3.0]


@pytest.mark.parametrize("load", [-1, float("nan"), float("inf"), 1e7, "1", True, [1]])
def test_a_load_that_is_none_is_refused(load: Any) -> None:
    with pytest.raises(Refused, match="load="):
        announced("a", load=load)


def test_an_answer_has_the_load_of_each_row_whatever_a_broker_sends() -> None:
    good = [plain.pack(row(name)) for name in "ab"]

    def loads(rows: Any, loads: Any) -> list[tuple[str, Any]]:
        found = unpack_answer({"rows": rows, "loads": loads})
        return [(each["name"], each["load"]) for each in found]

    assert loads(good, [1, 2.5]) == [("a", 1.0), ("b", 2.5)]
    assert loads([b"no row", good[1]], [1.0, 2.5, 3.0]) == [("b", 2.5)]
    assert loads(good, ["x"]) == loads(good, None) == [("a", None), ("b", None)]
    assert loads(None, [1.0]) == []


def test_a_name_belongs_to_the_first_for_as_long_as_it_lives(
    registry: Registry, watchers: Watchers
) -> None:
    registry.watch("w")
    assert registry.announce(1, announced("a", "first"), 0.0) is None
    why = registry.announce(2, announced("a", "second"), 0.0)
    assert why is not None and "'a'" in why and "--name" in why
    assert not registry.is_member(2)
    registry.leave(1, "its process has died")
    assert registry.announce(2, announced("a", "second"), 0.1) is None
    assert [found["id"] for found in listed(registry)] == ["second"]
    told = [(m["ev"], m.get("id") or m["row"]["id"]) for m in watchers.told["w"][1:]]
    assert told == [("host", "first"), ("gone", "first"), ("host", "second")]


def test_the_same_node_goes_on_over_a_new_channel(
    registry: Registry, watchers: Watchers
) -> None:
    registry.watch("w")
    registry.announce("old", announced("a"), 0.0)
    assert registry.announce("new", announced("a"), 1.0) is None
    assert registry.leave("old", "closed") is None  # nothing hangs on it any more
    assert not registry.still("old", 1.0) and registry.still("new", 1.0)
    assert names(registry) == ["a"]
    assert len(watchers.told["w"]) == 2


def test_homes_may_share_a_name_with_each_other_and_with_a_host(
    registry: Registry,
) -> None:
    registry.announce(1, announced("a"), 0.0)
    for member in (2, 3):
        home = announced("a", f"home-{member}", kind="home")
        assert registry.announce(member, home, 0.0) is None
    assert len(registry) == 3


def test_a_member_that_changes_its_name_gives_up_the_former(
    registry: Registry, watchers: Watchers
) -> None:
    registry.watch("w")
    registry.announce(1, announced("a", "x"), 0.0)
    registry.announce(1, announced("b", "x"), 0.0)
    assert names(registry) == ["b"]
    assert set(watchers.view("w")) == {"x"}
    assert registry.announce(2, announced("a", "y"), 0.0) is None


def test_a_refused_change_of_name_ends_the_membership(registry: Registry) -> None:
    registry.announce(1, announced("a"), 0.0)
    registry.announce(2, announced("b"), 0.0)
    assert registry.announce(2, announced("a", "node-of-b"), 0.0)
    assert names(registry) == ["a"]


def test_silence_ends_a_membership(registry: Registry, watchers: Watchers) -> None:
    registry.watch("w")
    registry.announce(1, announced("a"), 0.0)
    registry.announce(2, announced("b"), 1.0)
    registry.still(1, 2.0)
    assert registry.due() == 4.0
    assert registry.expire(3.99) == []
    ((member, found, why),) = registry.expire(4.0)
    assert (member, found.name) == (2, "b")
    assert "b has said nothing for 3.0 s" in why
    assert names(registry) == ["a"]
    assert watchers.told["w"][-1] == {
        "ev": "gone",
        "name": "b",
        "id": "node-of-b",
        "why": why,
    }
    assert not registry.still(2, 4.0)
    assert registry.expire(100.0)[0][0] == 1
    assert registry.due() is None


def test_a_watcher_that_is_lost_while_it_is_told_changes_no_order(
    registry: Registry, watchers: Watchers
) -> None:
    # Member 1 watches, too. Its channel breaks at the next post: it leaves while the
    # others are still to be told of the event before.
    for watcher in (1, 2, 3):
        registry.announce(watcher, announced(f"m{watcher}"), 0.0)
        registry.watch(watcher)

    def breaks(watcher: Any, message: dict[str, Any]) -> None:
        if watcher == 1 and message["ev"] == "host":
            registry.unwatch(1)
            registry.leave(1, "its queue is full")

    watchers.on_post = breaks
    registry.announce(4, announced("m4"), 0.0)
    for watcher in (2, 3):
        last = [(m["ev"], m.get("name")) for m in watchers.told[watcher][-2:]]
        assert last == [("host", None), ("gone", "m1")]
        assert set(watchers.view(watcher)) == {
            found["id"] for found in listed(registry)
        }


@pytest.mark.parametrize("seed", range(20))
def test_after_any_history_every_watcher_has_the_registrys_rows(
    seed: int, registry: Registry, watchers: Watchers
) -> None:
    rng, now = random.Random(seed), 0.0
    heard: dict[int, tuple[str, str, float]] = {}  # the obvious model, by member
    for step in range(400):
        now += rng.random() * 0.5
        member = rng.randrange(8)
        name, node = f"n{rng.randrange(4)}", f"x{rng.randrange(5)}"
        action = rng.choice(["announce", "still", "leave", "expire", "watch"])
        if action == "announce":
            new = announced(name, node, actors=rng.randrange(2))
            taken = [m for m, (n, i, _) in heard.items() if n == name and i != node]
            refused = registry.announce(member, new, now)
            assert bool(refused) == bool(set(taken) - {member})
            same = [m for m, (n, i, _) in heard.items() if n == name and i == node]
            heard.pop(member, None)
            if not refused:
                for former in same:
                    heard.pop(former, None)
                heard[member] = (name, node, now)
        elif action == "still" and registry.still(member, now):
            heard[member] = (*heard[member][:2], now)
        elif action == "leave":
            assert (registry.leave(member, "it left") is None) == (member not in heard)
            heard.pop(member, None)
        elif action == "expire":
            gone = {m for m, (*_, at) in heard.items() if at + 3.0 <= now}
            assert {m for m, *_ in registry.expire(now)} == gone
            heard = {m: kept for m, kept in heard.items() if m not in gone}
        elif action == "watch" and step % 40 == 0:
            registry.watch(f"w{step}")
        present = sorted((n, i) for n, i, _ in heard.values())
        assert sorted((r["name"], r["id"]) for r in listed(registry)) == present
        for told in watchers.told.values():
            assert told[0]["ev"] == "hosts"
    registry.watch("last")
    for watcher in watchers.told:
        seen = watchers.told[watcher]
        assert len([m for m in seen if m["ev"] == "hosts"]) == 1
        state: dict[str, Any] = {r["name"]: r for r in seen[0]["rows"]}
        for message in seen[1:]:
            if message["ev"] == "host":
                assert state.get(message["row"]["name"]) != message["row"]
                state[message["row"]["name"]] = message["row"]
            else:
                assert state.pop(message["name"])["id"] == message["id"]
        assert sorted(state) == names(registry)


def test_many_rows_come_in_several_messages(
    registry: Registry, watchers: Watchers
) -> None:
    count = 2 * AT_A_TIME + 1
    for number in range(count):
        registry.announce(number, announced(f"h{number:04}"), 0.0)
    registry.watch("w")
    assert [(len(m["rows"]), m["more"]) for m in watchers.told["w"]] == [
        (AT_A_TIME, True),
        (AT_A_TIME, True),
        (1, False),
    ]
    rows = [found for m in watchers.told["w"] for found in m["rows"]]
    assert [found["name"] for found in rows] == names(registry)


# -- rows ------------------------------------------------------------------


def test_a_row_is_the_announcement_without_its_op() -> None:
    held = {"mark": {"cpus": 0.5, "gpus": 0, "memory": 0}}
    found = read({"op": "announce", **row("a", reserved=held)})
    assert unpack(found.row) == row("a", reserved=held)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"name": 5}, "name=5 is no str"),
        ({"name": ""}, "is no name"),
        ({"name": "a\nb"}, "is no name"),
        ({"name": "x" * 300}, "at most 255"),
        ({"id": None}, "id=None is no str"),
        ({"address": b""}, "is no str"),
        ({"kind": "broker"}, "neither 'host' nor 'home'"),
        ({"cpus": -1}, "cpus=-1 is not between"),
        ({"memory": 1.5}, "memory=1.5 is no int"),
        ({"labels": {"a": 1}}, "no string"),
        ({"labels": {str(n): "" for n in range(65)}}, "at most 64"),
        ({"free": {}}, "free.cpus=None is no number"),
        ({"address": "tcp://*:1"}, r"address=.tcp://\*:1. is none"),
        ({"address": "nowhere"}, "address=.nowhere. is none"),
        ({"address": "tcp://"}, "address=.tcp://. is none"),
        ({"reserved": None}, "reserved=None is no dict"),
        ({"shares": 0.5}, "shares=0.5 is no list"),
        ({"shares": [0.5, "1"]}, "a share='1' is no number"),
        ({"reserved": {"mark": 1}}, "mark=1 is no dict"),
        ({"versions": 1}, "versions=1 is no dict"),
        ({"sessions": None}, "sessions=None is no list"),
        ({"actors": True}, "actors=True is no int"),
        ({"more": "x" * MAX_BYTES}, "the announcement has a length of"),
    ],
)
def test_a_wrong_row_is_refused_with_the_field(
    change: dict[str, Any], why: str
) -> None:
    with pytest.raises(Refused, match=why):
        read({"op": "announce", **row("a"), **change})


def test_another_wire_is_refused_with_both_versions() -> None:
    versions = {"mooactor": "9.0", "python": "3.11", "torch": None, "wire": 99}
    with pytest.raises(Refused, match=r"mooactor '9\.0'.*version 99 of the wire.*same"):
        read({"op": "announce", **row("a", versions=versions)})


def test_mutated_rows_are_refused_or_kept_within_bounds() -> None:
    rng = random.Random(5)
    original = plain.pack({"op": "announce", **row("a")})
    kept = 0
    for _ in range(20_000):
        data = bytearray(original)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            message = plain.unpack(bytes(data))
            found = read(message) if isinstance(message, dict) else None
        except (plain.Malformed, Refused):
            continue
        if found is not None:
            kept += 1
            assert len(found.row) <= MAX_BYTES
            assert unpack(found.row) is not None
    assert kept


def test_versions_that_differ_are_named_with_their_hosts() -> None:
    def runs(name: str, **versions: str | None) -> Announcement:
        return announced(name, versions={**row("a")["versions"], **versions})

    others = [runs(name, torch="2.4") for name in "bcdef"]
    others.append(runs("g", python="3.12.1"))
    assert differences(runs("a", torch="2.13"), others) == [
        "python is 3.11.7 here, 3.12.1 on g",
        "torch is 2.13 here, 2.4 on b, c, d and 2 more",
        "torch is 2.13 here, None on g",
    ]
    assert differences(runs("a"), [runs("b")]) == []
