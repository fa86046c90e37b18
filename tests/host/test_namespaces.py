# SPDX-License-Identifier: MIT
"""Homes of one namespace that find each other: one channel, however they meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from mooactor.control.node import Node
from mooactor.host.desk import Desk
from mooactor.host.eventloop import EventLoop
from mooactor.host.names import Names
from mooactor.host.namespaces import Namespace
from tests.cluster.rows import row
from tests.control.nodes import SECRET, together


class Home:
    """A home without processes, and its node."""

    def __init__(self, loop: EventLoop, name: str) -> None:
        self.loop, self.names = loop, Names(loop)
        self.sites = SimpleNamespace(here=SimpleNamespace(host=name))
        self.actors: dict[int, Any] = {}
        self.config = SimpleNamespace(process_id=1 << 60)
        self.ending, self.program = False, f"{name}.py"
        self.node = Node(SECRET)
        self.namespace = Namespace("shared", self, self.node)  # type: ignore[arg-type]
        self.logs = self.on_over = SimpleNamespace()
        self.node.accept = Desk(self, "s", name).accept  # type: ignore[arg-type]
        about = {"kind": "home", "namespace": "shared", "address": self.node.address}
        self.row = row(name, self.node.id.hex(), **about)

    def spawn(self, name: str) -> None:
        actor: Any = SimpleNamespace(
            id=(len(self.actors) + 1) << 16, name=name, label=name, handle=b"h"
        )
        self.actors[actor.id] = actor
        self.names.give(actor)

    @property
    def neighbors(self) -> list[Any]:
        return list(self.namespace._neighbors.values())

    @property
    def met(self) -> bool:
        return [one.told and one._follows for one in self.neighbors] == [True]

    @property
    def channels(self) -> int:
        return len(self.node.channels())


@pytest.fixture
def homes() -> Iterator[list[Home]]:
    loop = EventLoop()
    made = [Home(loop, name) for name in "ab"]
    yield made
    for home in made:
        home.namespace.close()
    together([home.node for home in made], lambda: False, 0.1)
    for home in made:
        home.node.close()
    loop._selector.close()


def serve(homes: list[Home], condition: Callable[[], object]) -> bool:
    def done() -> object:
        homes[0].loop.serve(0.0)
        return condition()

    return together([home.node for home in homes], done)


@pytest.mark.parametrize("who", ["both", "lower", "higher"])
def test_one_channel_stays_and_both_know_all_names(homes: list[Home], who: str) -> None:
    a, b = sorted(homes, key=lambda home: home.node.id)
    a.spawn("x")
    b.spawn("y")
    if who != "higher":
        a.namespace.on_row(b.row)
    if who != "lower":
        b.namespace.on_row(a.row)
    assert serve(homes, lambda: a.met and b.met and a.channels == b.channels == 1)
    assert a.names.taken_by("y") and b.names.taken_by("x")
    b.spawn("z")
    assert serve(homes, lambda: a.names.taken_by("z"))


def test_of_two_claims_at_once_one_wins(homes: list[Home]) -> None:
    a, b = sorted(homes, key=lambda home: home.node.id)
    answers: dict[str, str | None] = {}
    for one, other in ((a, b), (b, a)):
        one.namespace.on_row(other.row)
        one.namespace.claim(
            "n", lambda taken, one=one: answers.update({one.program: taken})
        )
    assert serve(homes, lambda: len(answers) == 2)
    assert answers[a.program] is None and answers[b.program] is not None


def test_homes_that_lost_each_other_meet_again(
    homes: list[Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooactor.host.namespaces._AGAIN_S", 0.01)
    monkeypatch.setattr("mooactor.host.namespaces._SETTLED_S", 0.05)
    a, b = homes
    for one, other in ((a, b), (b, a)):
        rows = [other.row]
        members: Any = SimpleNamespace(members=lambda rows=rows: rows)
        one.namespace.membership = members
        one.namespace.on_row(other.row)
    b.spawn("y")
    for _ in range(3):
        assert serve(homes, lambda: a.met and b.met and a.channels == 1)
        assert a.names.taken_by("y")
        (channel,) = a.node.channels()
        channel.fail("the cable is cut")
        assert serve(homes, lambda: not a.met)
