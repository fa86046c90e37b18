# SPDX-License-Identifier: MIT
"""A value for many actors crosses the way to each other host once.

Hosts are told apart by MOOACTOR_HOST_ID; their processes share memory among
themselves, and reach the others over TCP.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from tests.actors.counter import Counter
from tests.actors.networks.conftest import warm_up
from tests.conftest import eventually, running_session
from tests.processes import stop

SIZE = 8 << 20
SMALL = 100_000


def is_at_rest() -> bool:
    """Whether this process holds nothing for others."""
    stats = moo.stats()
    return not (stats["relayed"] or stats["memory"]["used_bytes"] or stats["arriving"])


@moo.actor
class Member:
    def __init__(self) -> None:
        self.kept: Any = None
        self.start: dict[str, int] = {}

    def begin(self, contact: Any) -> None:
        """Count from here on; something was received already."""
        self.start = moo.stats()["memory"]

    def take(self, data: Any, *, scribble: bool = False) -> int:
        self.kept = data
        first = int(data[0])
        if scribble:
            data[...] = 99
        return first

    def total(self) -> int:
        return int(self.kept.sum(dtype=np.int64))

    def forget(self) -> None:
        self.kept = None

    def pid(self) -> int:
        return os.getpid()

    def fetched(self) -> int:
        return self._since("fetched_tcp_bytes")

    def served(self) -> int:
        return self._since("served_tcp_bytes")

    def _since(self, what: str) -> int:
        return int(moo.stats()["memory"][what] - self.start[what])

    def at_rest(self) -> bool:
        return is_at_rest()


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    with running_session(transport="shm,tcp") as running:
        warm_up(moo.on(Counter, env={"MOOACTOR_HOST_ID": "some host"}))
        yield running


Hosts = Callable[..., list[list[Any]]]


def served() -> int:
    """By this process. Bytes are counted after they are sent, so a value may have
    arrived before it shows here."""
    return int(moo.stats()["memory"]["served_tcp_bytes"])


@pytest.fixture
def hosts(session: Any) -> Iterator[Hosts]:
    """Members on so many other hosts, so many on each."""
    made: list[Any] = []

    def make(count: int, members: int) -> list[list[Any]]:
        rows = []
        before = served()
        for n in range(count):
            place = moo.on(Member, env={"MOOACTOR_HOST_ID": f"host {n}"})
            rows.append(list(place.group(members)))
            made.extend(rows[-1])
        for member in made:
            member.pid()  # it is there, and so is its endpoint
            member.begin(data()[:SMALL])
        assert eventually(lambda: served() == before + len(made) * SMALL)
        return rows

    yield make
    for member in made:
        moo.kill(member)


def forgotten(members: list[Any]) -> bool:
    for member in members:
        member.forget()
    return eventually(
        lambda: is_at_rest() and all(member.at_rest() for member in members)
    )


def fetched(members: list[Any]) -> list[int]:
    return [member.fetched() for member in members]


def data() -> Any:
    return np.full(SIZE, 3, np.uint8)


def test_what_was_put_crosses_once_to_each_host(hosts):
    rows = hosts(2, 3)
    members = [member for row in rows for member in row]
    before = served()
    ref = moo.put(data())
    assert moo.get([member.take.remote(ref) for member in members]) == [3] * 6
    assert [sum(fetched(row)) for row in rows] == [SIZE, SIZE]
    assert eventually(lambda: served() - before == 2 * SIZE)
    assert [member.total() for member in members] == [3 * SIZE] * 6
    group = moo.Group(members)  # so do the arguments of its calls
    assert group.call(Member.take, data(), scribble=False).get() == [3] * 6
    assert [sum(fetched(row)) for row in rows] == [2 * SIZE] * 2
    del ref
    assert forgotten(members)


def test_between_hosts_it_is_a_binary_tree(hosts):
    rows = hosts(5, 1)
    members = [row[0] for row in rows]
    before = served()
    ref = moo.put(data())
    assert moo.get([member.take.remote(ref) for member in members]) == [3] * 5
    assert fetched(members) == [SIZE] * 5
    assert eventually(lambda: served() - before == 2 * SIZE)
    assert eventually(
        lambda: [member.served() // SIZE for member in members] == [2, 1, 0, 0, 0]
    )
    del ref
    assert forgotten(members)


# -- arguments of plain calls -------------------------------------------------


def test_plain_calls_with_one_array_take_it_to_each_host_once(hosts):
    rows = hosts(2, 2)
    members = [member for row in rows for member in row]
    array, before = data(), served()
    calls = [member.take.remote(array) for member in members * 2]
    array[...] = 5  # each call has it as it was
    assert moo.get(calls) == [3] * 8
    assert [member.total() for member in members] == [3 * SIZE] * 4
    assert [sum(fetched(row)) for row in rows] == [SIZE, SIZE]
    assert eventually(lambda: served() - before == 2 * SIZE)
    assert moo.get([member.take.remote(array) for member in members]) == [5] * 4
    assert [sum(fetched(row)) for row in rows] == [2 * SIZE] * 2
    assert forgotten(members)  # also while the Refs of the calls are there


@pytest.mark.parametrize("fault", ["kill", "stop", "cancel"])
def test_such_calls_do_without_the_first_process_of_a_host(hosts, fault):
    ((first, second, third),) = hosts(1, 3)
    array, pid = data(), first.pid()
    stop(pid)
    doomed = first.take.remote(array)
    if fault == "cancel":
        assert doomed.cancel()
    calls = [member.take.remote(array) for member in (second, third)]
    del array
    if fault == "kill":
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(moo.ActorDied):
            doomed.get()
    assert [call.get(timeout=20) for call in calls] == [3, 3]
    assert [second.total(), third.total()] == [3 * SIZE] * 2
    if fault != "kill":
        os.kill(pid, signal.SIGCONT)
        first.pid()
    assert fault != "stop" or doomed.get(timeout=20) == 3
    del doomed
    assert forgotten([second, third] if fault == "kill" else [first, second, third])
