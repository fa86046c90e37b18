# SPDX-License-Identifier: MIT
"""A learner group sends by the ways that its session allows, in each member."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from tests.actors.networks.conftest import STAND_IN, obstacle
from tests.conftest import running_session
from tests.learner.member import Member


@contextmanager
def members(*hosts: str, **options: Any) -> Iterator[list[Any]]:
    """One member on each of these hosts, in a session with these options; they have
    done something together."""
    with running_session(**options):
        made = [moo.on(Member, env=_host(host)).spawn() for host in hosts]
        size = len(made)
        for ref in [member.join.remote("ways", size, size) for member in made]:
            ref.get(30)
        yield made
        for member in made:
            moo.kill(member)


def _host(name: str) -> dict[str, str]:
    return {"MOOACTOR_HOST_ID": name} if name else {}


def transports(made: list[Any]) -> list[str | None]:
    return [member.ask("transport") for member in made]


@pytest.fixture(autouse=True)
def _plain(no_session: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOOACTOR_TRANSPORT", raising=False)


def test_what_init_was_given_holds_for_them() -> None:
    with members("", "", "", transport="tcp") as made:
        assert transports(made) == ["tcp"] * 3
        assert made[2].ask("__repr__").endswith("3 hosts, tcp>")


def test_members_of_one_host_say_the_same() -> None:
    with members("a", "a", "b", "b") as made:
        assert transports(made) == ["tcp"] * 4
        assert [member.ask("statistics")["hosts"] for member in made] == [2] * 4


def test_a_fabric_is_used_where_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOOACTOR_FABRIC", os.environ.get("MOOACTOR_FABRIC", STAND_IN))
    if why := obstacle("ofi"):
        pytest.skip(why)
    with members("a", "b", transport="ofi") as made:
        assert transports(made) == ["ofi", "ofi"]
        refs = [member.reduce_often.remote(1_000_000, 2) for member in made]
        assert moo.get(refs) == [[2.0, 2.0]] * 2


def test_before_they_have_met_nothing_is_said() -> None:
    with running_session(transport="tcp"):
        group = moo.on(Member).group(2)
        group.join.call("waits", 2).get()
        assert group.call(Member.ask, "transport").get() == [None, None]
        assert group[0].ask("__repr__").endswith("2 hosts, not connected yet>")
        group.call(Member.barrier).get()
        assert group.call(Member.ask, "transport").get() == ["tcp", "tcp"]
        for member in group:
            moo.kill(member)


def test_the_driver_is_no_exception() -> None:
    with running_session(transport="tcp"):
        other: Any = moo.spawn(Member)
        joined = other.join.remote("both", 2)
        with moo.LearnerGroup("both", min_size=2) as group:
            joined.get()
            theirs = other.reduce_often.remote(100_000, 1)
            array = np.full(100_000, 2.0, np.float32)
            group.allreduce(array, op="sum").wait()
            assert theirs.get() == [float(array[0])] == [3.0]
            assert group.transport == other.ask("transport") == "tcp"
        moo.kill(other)


def connections(member: Any) -> list[Any]:
    """Those of its process, over TCP, that stand."""
    psutil = pytest.importorskip("psutil")
    found = psutil.Process(member.pid()).net_connections("tcp")
    return [link for link in found if link.status == "ESTABLISHED"]


def addresses(made: list[Any]) -> set[str]:
    """Those by which the members' processes are connected."""
    found = [link for member in made for link in connections(member)]
    return {link.laddr.ip.removeprefix("::ffff:") for link in found}


def test_they_listen_where_they_are_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    # By default members that have names of hosts listen at all addresses but this.
    monkeypatch.setenv("MOOACTOR_BIND", "127.0.0.1")
    with members("a", "b") as made:
        assert addresses(made) == {"127.0.0.1"}
