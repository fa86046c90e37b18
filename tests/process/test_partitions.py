# SPDX-License-Identifier: MIT
"""Two hosts that lose each other for a while, or for good, and processes that are
busy or stopped: what must break, and what must not."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.control.ways import DEAD_PATH_MS
from mooactor.process.current import current_runtime
from tests.conftest import eventually
from tests.networks import Cable, why_not
from tests.process.guest import Guest, Slow
from tests.process.hosts import Hosts, cabled_hosts, hosts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]
#: TCP's own limit, what it may take beyond that, and a busy machine.
KNOWN_S = 2 * DEAD_PATH_MS / 1000 + 10


@pytest.fixture
def cable() -> Iterator[Cable]:
    cable = Cable()
    yield cable
    cable.close()


@pytest.fixture
def two(cable: Cable) -> Iterator[Hosts]:
    with cabled_hosts(cable) as made:
        yield made


def breaks() -> int:
    ways = current_runtime().messenger.ways
    assert ways is not None
    return ways.breaks


def test_a_partition_of_two_seconds_heals_with_nothing_lost(
    two: Hosts, cable: Cable
) -> None:
    guest = two.start("b", Guest)
    refs = [guest.add.remote(number) for number in range(100)]
    moo.get(refs, timeout=20)
    with cable.pulled():
        refs = [guest.add.remote(number) for number in range(100, 600)]
        time.sleep(2.0)
        assert not refs[-1].done()
    assert moo.get(refs, timeout=20) == list(range(100, 600))
    assert guest.all_seen() == list(range(600))
    assert breaks() == guest.breaks() == 0


def test_so_does_one_that_no_kernel_sees(two: Hosts, cable: Cable) -> None:
    guest = two.start("b", Guest)
    assert guest.add(0) == 0
    with cable.swallowing():  # calls arrive, replies do not
        refs = [guest.add.remote(number) for number in range(1, 300)]
        time.sleep(2.0)
    assert moo.get(refs, timeout=20) == list(range(1, 300))
    assert guest.all_seen() == list(range(300))
    assert breaks() == guest.breaks() == 0


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_a_path_that_stays_dead_is_known(two: Hosts, cable: Cable) -> None:
    slow = two.start("b", Slow)
    assert count(slow) == 0
    running = slow.wait.remote(1000)  # nothing more is sent: keepalive finds out
    assert eventually(lambda: count(slow) == 1)
    began = time.monotonic()
    with cable.swallowing():
        lost = slow.wait.remote(0.0)
        for ref in (running, lost):
            with pytest.raises(moo.ActorUnavailable, match="on host b") as caught:
                ref.get(timeout=KNOWN_S)
            assert caught.value.delivered is None
        assert time.monotonic() - began < KNOWN_S
    assert eventually(lambda: works(slow), 40)


def count(slow: Any) -> int:
    return int(asyncio.run(asyncio.wait_for(slow.count(), 20)))


def works(slow: Any) -> bool:
    try:
        return count(slow) >= 1
    except moo.MooError:
        return False


def test_a_stopped_process_is_not_cut_off(two: Hosts) -> None:
    guest = two.start("b", Guest)
    pid = guest.pid()
    assert guest.total(np.ones(1 << 20, np.uint8)) == 1 << 20  # they have met
    os.kill(pid, signal.SIGSTOP)
    refs = [guest.add.remote(number) for number in range(500)]
    big = guest.total.remote(np.ones(8 << 20, np.uint8))
    time.sleep(2.0)
    os.kill(pid, signal.SIGCONT)
    assert moo.get(refs, timeout=20) == list(range(500))
    assert big.get(timeout=20) == 8 << 20
    assert breaks() == guest.breaks() == 0


def test_one_that_holds_the_gil_keeps_its_connections(two: Hosts) -> None:
    guest = two.start("b", Hog)
    assert guest.echo(1) == 1
    held = guest.hold_the_gil.remote(3.0)
    refs = [guest.echo.remote(number) for number in range(200)]
    assert held.get(timeout=20) is None
    assert moo.get(refs, timeout=20) == list(range(200))
    assert breaks() == 0


def test_a_newcomer_waits_for_one_that_holds_the_gil(two: Hosts) -> None:
    hog = two.start("b", Hog)
    assert hog.echo(1) == 1
    held = hog.hold_the_gil.remote(3.0)
    newcomer = two.start("a", Asker)
    assert newcomer.ask(hog) == 7
    assert held.get(timeout=20) is None


class Hog:
    def echo(self, value: int) -> int:
        return value

    def hold_the_gil(self, seconds: float) -> None:
        """No other thread of this process runs Python code meanwhile."""
        import ctypes

        sleep = ctypes.PyDLL(None).usleep  # keeps the lock during the call
        sleep(int(seconds * 1e6))


class Asker:
    def ask(self, other: Any) -> int:
        return int(other.echo(7))


def test_a_flood_and_a_break_lose_no_call_in_silence() -> None:
    """Every call has one end, each that succeeded ran once, and in order."""
    with hosts("a", "b") as made:
        guest = made.start("b", Guest)
        assert eventually(lambda: made.agent.members[guest._actor_id].place)
        proxy = made.agent.proxy(guest._actor_id)
        guest.add(-1)
        stop = threading.Event()

        def cut_often() -> None:
            while not stop.wait(0.05):
                proxy.cut()

        cutter = threading.Thread(target=cut_often)
        cutter.start()
        try:
            refs = [guest.add.remote(number) for number in range(3000)]
            ends = [end_of(ref) for ref in refs]
        finally:
            stop.set()
            cutter.join()
        seen = made_sure(guest)
        succeeded = [number for number in range(3000) if ends[number] is None]
        assert seen == sorted(set(seen))  # in order, none twice
        assert set(succeeded) <= set(seen)
        assert all(end in (None, moo.ActorUnavailable) for end in ends)
        assert current_runtime().statistics()["calls_pending"] == 0


def end_of(ref: Any) -> type | None:
    try:
        ref.get(timeout=20)
    except moo.MooError as error:
        return type(error)
    return None


def made_sure(guest: Any) -> list[int]:
    return list(guest.all_seen.options(retries=9).remote().get(timeout=20))
