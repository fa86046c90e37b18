# SPDX-License-Identifier: MIT
"""Who hears that a learner group has members on two hosts: see `LoneHome`.

Actors b0, b1, … are on host b, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.host.lone_homes import LoneHome

SENTENCE = (
    "learner group 'x' has members on host b already, and a process on host c was "
    "refused: in this version all members of a learner group must be actors on one "
    "host; place them with moo.on(…, host='b')"
)


class Members:
    """Actors of a lone home that ask for the memory of one group."""

    def __init__(self, home: LoneHome, names: str) -> None:
        self.home = home
        self.actors: dict[str, Any] = {}
        self._numbers = 0
        self._seen: dict[str, int] = {}
        for name in names.split():
            self.spawn(name)

    def spawn(self, name: str) -> None:
        self.actors[name] = actor = self.home.spawn(len(self.actors) + 1, host=name[0])
        self.home.born(name[0], actor)

    def ask(self, name: str, members: int) -> str:
        """What comes of it: "memory", "memory, told" or "refused"."""
        self._numbers += 1
        request = {"op": "segment", "rid": 7, "name": "learners:x", "size": 4096}
        request |= {"waiting": self._numbers, "members": members}
        self.home.says(name[0], self.actors[name], **request)
        return ", ".join(self.heard(name))

    def heard(self, name: str) -> list[str]:
        """What that one has heard since it was asked for last."""
        number = self.actors[name].process.line.number
        lines = self.home.wire(name[0]).of("line")
        mine = [line["message"] for line in lines if line["number"] == number]
        seen = self._seen.get(name, 0)
        self._seen[name] = len(mine)
        return [_word(message) for message in mine[seen:]]


def _word(message: dict[str, Any]) -> str:
    if message["ev"] == "several_hosts":
        return "told"
    return "refused" if message.get("error") == "several hosts" else "memory"


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Callable[[str], Members]]:
    homes: list[LoneHome] = []

    def make(names: str) -> Members:
        homes.append(LoneHome(tmp_path, "bc"))
        return Members(homes[-1], names)

    yield make
    for home in homes:
        home.close()


def test_who_waits_is_told_when_one_on_another_host_is_refused(members: Any) -> None:
    group = members("b0 b1 c0")
    assert group.ask("b0", 3) == group.ask("b1", 3) == "memory"
    assert group.ask("c0", 3) == "refused"
    assert group.heard("b0") == group.heard("b1") == ["told"]


def test_members_that_come_after_the_refusal_are_told_then(members: Any) -> None:
    group = members("b0 b1 c0 c1 b2")
    assert group.ask("b0", 4) == "memory"
    assert group.ask("c0", 4) == "refused"
    assert group.heard("b0") == ["told"]
    assert group.ask("b1", 4) == "memory, told"
    assert group.ask("c1", 4) == "refused"
    assert group.heard("b0") == group.heard("b1") == []
    assert group.ask("b2", 4) == "memory"  # all four have heard of it


def test_all_on_the_right_host_form_a_group_afterwards(members: Any) -> None:
    group = members("b0 b1 c0")
    group.ask("b0", 2)
    group.ask("c0", 2)
    assert group.heard("b0") == ["told"]
    assert group.ask("b0", 2) == group.ask("b1", 2) == "memory"
    assert group.heard("b0") == group.heard("b1") == []


def test_a_process_that_has_ended_is_told_nothing(members: Any) -> None:
    group = members("b0 b1 c0")
    group.ask("b0", 2)
    line = group.actors["b0"].process.line
    group.home.hear("b", what="closed", number=line.number)
    group.ask("c0", 2)
    assert group.heard("b0") == []
