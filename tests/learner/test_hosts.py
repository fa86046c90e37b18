# SPDX-License-Identifier: MIT
"""Learner groups on two hosts with a cable between them, which can be pulled."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mooactor.tensors import operations
from tests.actors.networks.conftest import STAND_IN, obstacle
from tests.conftest import eventually
from tests.learner.hosts import Ranks
from tests.networks import Cable, ip, why_not
from tests.processes import stop

_reason = why_not()
pytestmark = pytest.mark.skipif(_reason is not None, reason=str(_reason))

# In bytes: what may come on top of the data: headers of packets, acknowledgements.
OVERHEAD = 1.1
# In seconds, from a cut to the error: 3, or 5 where acknowledgements are slow, as they
# are on a machine with ten times as much to do as it has processors.
CUT_S = 8.0


@pytest.fixture
def cable() -> Iterator[Cable]:
    made = Cable()
    yield made
    made.close()


@pytest.fixture
def ranks() -> Iterator[Callable[..., Ranks]]:
    """``ranks(cable, "aabb")``: one member on each of these hosts."""
    made: list[Ranks] = []

    def make(cable: Cable, hosts: str, **options: Any) -> Ranks:
        where = [cable.namespace[host] for host in hosts]
        made.append(Ranks(where, list(hosts), **options))
        return made[-1]

    yield make
    for group in made:
        group.close()


def sums(elements: int, size: int) -> list[float]:
    def one(i: int) -> int:
        return sum(i % 1000 + rank for rank in range(size))

    first, last = range(7), range(elements - 7, elements)
    return [0, float(sum(map(one, first))), float(sum(map(one, last)))]


@pytest.mark.slow
@pytest.mark.parametrize("hosts", ["ab", "aaab"])
@pytest.mark.parametrize("stripes", ["1", "3"])
def test_a_sum_crosses_the_link_once_each_way(
    cable: Cable, ranks: Any, hosts: str, stripes: str
) -> None:
    group = ranks(cable, hosts, env={"MOOACTOR_STRIPES": stripes})
    before = cable.sent("a"), cable.sent("b")
    for elements in (9, 30_000, 3_000_000):
        assert group.do("sum", elements) == [sums(elements, len(hosts))] * len(hosts)
    for host, had in zip("ab", before, strict=True):
        assert cable.sent(host) - had < 3_030_009 * 4 * OVERHEAD


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in for RDMA hardware; asked for first, as it may skip the test."""
    monkeypatch.setenv("MOOACTOR_FABRIC", STAND_IN)
    if why := obstacle("ofi"):
        pytest.skip(why)


def _fabric(cable: Cable, ranks: Any, hosts: str) -> Ranks:
    """Ranks that reach each other through the stand-in."""

    def is_up(space: str) -> bool:
        return '"UP"' in ip("-j", "-n", space, "link", "show", "up0")

    # libfabric wants the interface running
    assert eventually(lambda: all(map(is_up, cable.namespace.values())), 30)
    binds = ["10.99.1.1" if host == "a" else "10.99.1.2" for host in hosts]
    env = {"MOOACTOR_TRANSPORT": "ofi,shm"}
    group: Ranks = ranks(cable, hosts, binds=binds, env=env)
    return group


@pytest.mark.slow
def test_a_sum_through_a_fabric(stand_in: None, cable: Cable, ranks: Any) -> None:
    hosts = "abab"
    group = _fabric(cable, ranks, hosts)
    for elements in (9, 30_000, 3_000_000):
        assert group.do("sum", elements) == [sums(elements, len(hosts))] * len(hosts)


@pytest.mark.slow
def test_where_nothing_leads_to_the_other_host_all_are_told(
    cable: Cable, ranks: Any
) -> None:
    group = ranks(cable, "ab", env={"MOOACTOR_TRANSPORT": "shm"})
    assert [answer[0] for answer in group.do("status")] == [operations.EUNREACHABLE] * 2
    env = {"MOOACTOR_TRANSPORT": "ofi", "MOOACTOR_LIBFABRIC": "/nowhere"}
    seen = ranks(cable, "ab", env=env).do("status")
    assert [answer[0] for answer in seen] == [operations.EUNREACHABLE] * 2
    assert "no allowed transport" in seen[0][1] == seen[1][1]


@pytest.mark.slow
@pytest.mark.quiet
@pytest.mark.parametrize(("hosts", "elements"), [("ab", 10), ("abab", 2_000_000)])
def test_a_pulled_cable_is_one_error_for_all_and_not_the_end(
    cable: Cable, ranks: Any, hosts: str, elements: int
) -> None:
    group = ranks(cable, hosts)
    seen = _pull_while_busy(cable, group, elements)
    count, status, rank, epoch, _, left, text, _ = seen[0]
    assert not left and text.startswith("the connection between rank ")
    for answer in seen:
        assert answer[:4] == [count, status, rank, epoch] and answer[6] == text
    assert group.do("sum", elements) == [sums(elements, len(hosts))] * len(hosts)


def _pull_while_busy(cable: Cable, group: Ranks, elements: int) -> list[Any]:
    """What each saw when the cable was pulled amid sums; it is back then."""
    group.tell("sum_until_failure", elements)
    _wait_until_busy(cable)
    cut = time.monotonic()
    cable.set("down")
    seen = group.answers()
    cable.set("up")
    assert max(answer[-1] for answer in seen) - cut < CUT_S
    assert {answer[1] for answer in seen} == {operations.EPEER}
    return seen


def _wait_until_busy(cable: Cable) -> None:
    """Until bytes of operations have crossed the link for some time."""
    before = cable.sent("a")
    assert eventually(lambda: cable.sent("a") >= before + 20_000, 30)


@pytest.mark.slow
@pytest.mark.quiet
def test_a_killed_process_on_the_other_host_is_named_within_a_second(
    cable: Cable, ranks: Any
) -> None:
    group = ranks(cable, "abab")
    group.tell("sum_until_failure", 2_000_000)
    _wait_until_busy(cable)
    killed = time.monotonic()
    group.processes[1].send_signal(signal.SIGKILL)
    seen = [answer for answer in group.answers() if answer is not None]
    assert len(seen) == 3
    assert {tuple(answer[1:3]) for answer in seen} == {(operations.EPEER, 1)}
    assert min(answer[-1] for answer in seen) - killed < 1.0
    states = [answer for answer in group.do("status") if answer is not None]
    assert [state[0] for state in states] == [0, 0, 0]
    assert [state[2:4] for state in states] == [[0, 3], [1, 3], [2, 3]]


@pytest.mark.slow
def test_a_stopped_process_is_waited_for(cable: Cable, ranks: Any) -> None:
    group = ranks(cable, "ab")
    group.tell("sum", 30_000_000)
    _wait_until_busy(cable)
    stop(group.processes[1].pid)
    time.sleep(4)  # a sleep is what is tested: longer than a cut link is believed in
    group.processes[1].send_signal(signal.SIGCONT)
    assert group.answers() == [sums(30_000_000, 2)] * 2
