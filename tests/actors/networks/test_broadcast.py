# SPDX-License-Identifier: MIT
"""A value for many actors crosses the way to each other host once.

Hosts are told apart by MOOACTOR_HOST_ID; their processes share memory among
themselves, and reach the others over TCP.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from tests.actors.counter import Counter
from tests.actors.networks.conftest import warm_up
from tests.conftest import eventually, running_session
from tests.gates import wait_at
from tests.interruptions import points
from tests.marks import slow
from tests.processes import stop

SIZE = 8 << 20
SMALL = 100_000


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

    def take_inside(self, box: list[Any]) -> int:
        return self.take(box[0].get())

    def keep(self, data: Any) -> None:
        self.kept = data

    def read_inner(self) -> int:
        return int(self.kept["inner"].get()[0])

    def total(self) -> int:
        return int(self.kept.sum(dtype=np.int64))

    def take_and_wait(self, data: Any, path: str) -> int:
        """Until there is a file of that name. It makes one, too, when it begins."""
        first = self.take(data)
        Path(path + "-begun").touch()
        wait_at(path)
        return first

    def hold_gil(self, seconds: float) -> None:
        ctypes.PyDLL(None).usleep(int(seconds * 1e6))

    def forget(self) -> None:
        self.kept = None

    def pid(self) -> int:
        return os.getpid()

    def fetched(self) -> int:
        return int(
            moo.stats()["memory"]["fetched_tcp_bytes"] - self.start["fetched_tcp_bytes"]
        )

    def served(self) -> int:
        return int(
            moo.stats()["memory"]["served_tcp_bytes"] - self.start["served_tcp_bytes"]
        )

    def at_rest(self) -> bool:
        stats = moo.stats()
        return not (
            stats["relayed"] or stats["memory"]["used_bytes"] or stats["arriving"]
        )


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    with running_session(transport="shm,tcp") as running:
        warm_up(moo.on(Counter, env={"MOOACTOR_HOST_ID": "some host"}))
        yield running


Hosts = Callable[..., list[list[Any]]]


def served() -> int:
    """By this process. What is sent is counted after it is sent, so a value may have
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


def at_rest(members: list[Any]) -> bool:
    runtime_at_rest = (
        not moo.stats()["relayed"] and not moo.stats()["memory"]["used_bytes"]
    )
    return runtime_at_rest and all(member.at_rest() for member in members)


def forgotten(members: list[Any]) -> bool:
    for member in members:
        member.forget()
    return eventually(lambda: at_rest(members), 20)


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
    del ref
    assert forgotten(members)


def send(members: list[Any], ref: Any) -> None:
    for member in members:
        member.take.remote(ref)


@pytest.mark.parametrize("step", [23, slow(1)])
def test_a_broadcast_that_is_interrupted_leaves_nothing_elsewhere(hosts, step):
    rows = hosts(2, 2)
    members = [member for row in rows for member in row]
    done = 0
    for point in points(step):
        ref = moo.put(data()[: 1 << 18])
        done += bool(point.interrupt(partial(send, members, ref)))
        del ref
        assert forgotten(members), point.where
    assert done > 100 // step


def test_whoever_comes_later_gets_it_on_its_own_host(hosts):
    ((first, second, third),) = hosts(1, 3)
    ref = moo.put(data())
    assert first.take(ref, scribble=True) == 3
    first.forget()
    assert second.take(ref) == third.take(ref) == 3
    assert second.total() == 3 * SIZE
    assert sum(fetched([first, second, third])) == SIZE


def test_refs_inside_other_values_take_the_same_way(hosts):
    ((first, second),) = hosts(1, 2)
    ref = moo.put(data())
    assert moo.get([m.take_inside.remote([ref]) for m in (first, second)]) == [3, 3]
    assert sum(fetched([first, second])) == SIZE
    del ref
    assert forgotten([first, second])


def test_everyone_holds_the_refs_inside_a_value_that_was_handed_on(hosts):
    rows = hosts(3, 2)
    members = [member for row in rows for member in row]
    ref = moo.put({"data": data(), "inner": moo.put(data()[:SMALL] + 1)})
    moo.get([member.keep.remote(ref) for member in members])
    assert sum(sum(fetched(row)) for row in rows) < 4 * SIZE  # it was handed on
    del ref
    for member in members:
        assert member.read_inner() == 4
        member.forget()
    assert forgotten(members)
    assert eventually(lambda: moo.stats()["objects"] == 0)


def test_a_call_to_a_group_crosses_once_to_each_host(hosts):
    rows = hosts(2, 2)
    members = [member for row in rows for member in row]
    group = moo.Group(members)
    assert group.call(Member.take, data(), scribble=False).get() == [3] * 4
    assert [sum(fetched(row)) for row in rows] == [SIZE, SIZE]
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


def test_small_values_are_sent_to_everybody(hosts):
    members = hosts(1, 2)[0]
    ref = moo.put(data()[:SMALL])
    assert moo.get([member.take.remote(ref) for member in members]) == [3, 3]
    assert fetched(members) == [SMALL, SMALL]


def test_one_that_died_before_it_handed_on_is_replaced(hosts):
    ((first, second, third),) = hosts(1, 3)
    pid = first.pid()
    stop(pid)
    ref = moo.put(data())
    calls = [member.take.remote(ref) for member in (first, second, third)]
    assert not moo.wait(calls, timeout=0.2)[0]
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(moo.ActorDied):
        calls[0].get()
    assert [call.get(timeout=20) for call in calls[1:]] == [3, 3]
    assert sum(fetched([second, third])) == SIZE
    del ref, calls
    assert forgotten([second, third])


def test_so_is_one_that_died_afterwards(hosts):
    ((first, second),) = hosts(1, 2)
    ref = moo.put(data())
    assert first.take(ref) == 3
    moo.kill(first)
    assert second.take(ref) == 3
    assert second.fetched() == SIZE
    del ref
    assert forgotten([second])


def test_one_hands_on_while_its_method_runs(hosts, tmp_path):
    rows = hosts(3, 2)
    first, *others = [member for row in rows for member in row]
    gate = Path(tmp_path, "go on")
    ref = moo.put(data())
    running = first.take_and_wait.remote(ref, str(gate))
    wait_at(f"{gate}-begun")
    time.sleep(0.5)  # nothing else is due there any more
    calls = [member.take.remote(ref) for member in others]
    assert [call.get(timeout=20) for call in calls] == [3] * 5
    assert not running.done()
    gate.touch()
    assert running.get(timeout=20) == 3
    assert [sum(fetched(row)) for row in rows] == [SIZE] * 3
    del ref, running, calls
    assert forgotten([first, *others])


def test_two_of_a_host_can_meet_in_a_method(hosts, tmp_path):
    ((first, second),) = hosts(1, 2)
    gate = Path(tmp_path, "both")
    ref = moo.put(data())
    running = first.take_and_wait.remote(ref, str(gate))
    wait_at(f"{gate}-begun")
    time.sleep(0.5)  # nothing else is due there any more
    assert second.take.remote(ref).get(timeout=20) == 3
    gate.touch()
    assert running.get(timeout=20) == 3
    assert sum(fetched([first, second])) == SIZE


def test_one_that_holds_its_gil_is_passed_over(hosts):
    rows = hosts(3, 2)
    first, *others = [member for row in rows for member in row]
    seconds = 4.0
    busy = first.hold_gil.remote(seconds)
    time.sleep(0.2)  # it is in its method
    ref = moo.put(data())
    calls = [member.take.remote(ref) for member in (first, *others)]
    assert [call.get(timeout=20) for call in calls[1:]] == [3] * 5
    assert not busy.done()
    assert calls[0].get(timeout=20) == 3
    # Once for it, and once for the other one of its host.
    assert sum(fetched(rows[0])) <= 2 * SIZE
    assert [sum(fetched(row)) for row in rows[1:]] == [SIZE, SIZE]
    del ref, calls, busy
    assert forgotten([first, *others])


def test_one_that_is_stopped_is_passed_over_and_gets_its_value_later(hosts):
    rows = hosts(2, 3)
    first, *others = [member for row in rows for member in row]
    pid = first.pid()
    stop(pid)
    ref = moo.put(data())
    calls = [member.take.remote(ref) for member in (first, *others)]
    assert [call.get(timeout=20) for call in calls[1:]] == [3] * 5
    os.kill(pid, signal.SIGCONT)
    assert calls[0].get(timeout=20) == 3
    assert first.total() == 3 * SIZE
    del ref, calls
    assert forgotten([first, *others])


def test_the_death_of_one_who_waits_leaves_nothing(hosts):
    ((first, second, third),) = hosts(1, 3)
    pids = [first.pid(), second.pid()]
    for pid in pids:
        stop(pid)
    ref = moo.put(data())
    calls = [member.take.remote(ref) for member in (first, second, third)]
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(moo.ActorDied):
        calls[1].get()
    os.kill(pids[0], signal.SIGCONT)
    assert calls[0].get() == calls[2].get() == 3
    del ref, calls
    assert forgotten([first, third])


def test_a_cancelled_call_gets_its_value_and_forgets_it(hosts):
    ((first, second),) = hosts(1, 2)
    pid = first.pid()
    stop(pid)
    ref = moo.put(data())
    calls = [member.take.remote(ref) for member in (first, second)]
    assert calls[1].cancel()
    os.kill(pid, signal.SIGCONT)
    assert calls[0].get() == 3
    del ref, calls
    assert forgotten([first, second])
