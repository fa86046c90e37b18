# SPDX-License-Identifier: MIT
"""Which actor a line is of: pids are given again, and actors end."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from mooactor.host.printers import Printer, Printers


@dataclass
class Actor:
    id: int
    pid: int | None
    host: str = "a"
    incarnation: int = 0


class Home:
    """Of the session of a program on host a."""

    def __init__(self) -> None:
        self.actors: list[Actor] = []
        self.looks = 0
        here = SimpleNamespace(host="a")
        self.sites = SimpleNamespace(here=here, host_of=self.host_of)

    def host_of(self, actor_id: int) -> str:
        return next((one.host for one in self.actors if one.id == actor_id), "")

    def alive(self) -> list[Actor]:
        self.looks += 1
        return [one for one in self.actors if one.pid is not None]


@pytest.fixture
def home() -> Any:
    return Home()


def test_the_same_pid_on_two_hosts_is_of_two_actors(home: Any) -> None:
    home.actors = [Actor(1, 7), Actor(2, 7, "b"), Actor(3, None)]
    found = Printers(home)
    for _ in range(3):
        assert found.of("Talk", 7, "") == Printer("Talk", 7, f"{1:016x}", 0)
        assert found.of("Talk", 7, "b") == Printer("Talk", 7, f"{2:016x}", 0)
    assert home.looks == 2  # a line costs no look at all actors


def test_a_pid_that_is_given_again_is_of_the_later_actor(home: Any) -> None:
    home.actors = [first := Actor(1, 7), Actor(2, 8)]
    found = Printers(home)
    assert found.of("Talk", 7, "").actor == f"{1:016x}"
    first.pid, first.incarnation = 9, 1
    assert found.of("Talk", 9, "") == Printer("Talk", 9, f"{1:016x}", 1)
    home.actors[1].pid = 7
    assert found.of("Talk", 7, "").actor == f"{2:016x}"


def test_a_process_of_no_actor_has_its_label_and_pid_alone(home: Any) -> None:
    assert Printers(home).of("Talk", 7, "b").plain() == {"label": "Talk", "pid": 7}
