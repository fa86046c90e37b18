# SPDX-License-Identifier: MIT
"""Actors that are restarted after a death, and what their callers and watchers see."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from tests.actors.counter import Counter
from tests.gates import wait_at


def test_a_restarted_actor_takes_calls_until_its_budget_ends(spawn: Any) -> None:
    counter = spawn(moo.on(Counter, restart=moo.Restart(max=1)), 5)
    before = counter.pid()
    with pytest.raises(moo.ActorRestarted) as caught:
        counter.kill_self()
    assert caught.value.delivered is None
    assert caught.value.cause.signal == signal.SIGKILL
    assert counter.add(1) == 6  # made anew by the same constructor call
    assert counter.pid() != before
    with pytest.raises(moo.ActorDied) as died:
        counter.kill_self()
    assert not isinstance(died.value, moo.ActorRestarted)
    with pytest.raises(moo.ActorDied):
        counter.echo(1)


# -- calls that are made again ---------------------------------------------


@moo.actor
class Flaky:
    """Its process dies in its first call, once the gate is open."""

    def __init__(self, gate: Path, marker: Path) -> None:
        self.gate, self.marker = gate, marker

    def work(self) -> str:
        wait_at(self.gate)
        if not self.marker.exists():
            self.marker.touch()
            os._exit(1)
        return "done"

    async def work_async(self) -> str:
        return self.work()


@pytest.mark.parametrize("method", ["work", "work_async"])
@pytest.mark.parametrize("retries", [1, 0])
def test_who_was_handed_a_result_gets_that_of_the_call_that_was_made_again(
    spawn: Any, tmp_path: Path, method: str, retries: int
) -> None:
    gate = tmp_path / "gate"
    policy = moo.Restart(max=2)
    flaky = spawn(moo.on(Flaky, restart=policy), gate, tmp_path / "marker")
    user = spawn(Counter)
    ref = getattr(flaky, method).options(retries=retries).remote()
    uses = [user.echo.remote(ref) for _ in range(3)]
    gate.touch()
    if retries:
        assert moo.get([ref, *uses], timeout=60) == ["done"] * 4
    else:
        for one in (ref, *uses):
            assert isinstance(one.exception(timeout=60), moo.ActorRestarted)
    assert user.echo(1) == 1
    assert moo.stats()["values_pending"] == 0


def test_calls_made_meanwhile_start_after_those_that_are_made_again(spawn: Any) -> None:
    handle = spawn(moo.on(Counter, restart=moo.Restart(max=1000)))
    handle.note(-1)
    over = threading.Event()
    sent: list[Any] = []

    def send() -> None:
        """One client's calls, before the death and after it."""
        for number in range(100_000):
            sent.append(handle.note.options(retries=3).remote(number))
            if over.is_set():
                return

    thread = threading.Thread(target=send)
    dies = handle.kill_self.remote()
    thread.start()
    with pytest.raises(moo.ActorRestarted):
        dies.get(60)
    over.set()
    thread.join()
    moo.get(sent, timeout=60)
    numbers = handle.notes()
    assert numbers == sorted(numbers) and len(numbers) > 0


# -- stops -----------------------------------------------------------------


@pytest.mark.parametrize("end", [moo.kill, moo.stop])
def test_a_killed_or_stopped_actor_is_not_restarted(spawn: Any, end: Any) -> None:
    counter = spawn(moo.on(Counter, restart=moo.Restart(max=3)))
    counter.echo()
    end(counter)
    with pytest.raises(moo.ActorDied):
        counter.echo()
    waiting = spawn(moo.on(Counter, restart=moo.Restart(max=1, backoff=1000.0)))
    with pytest.raises(moo.ActorRestarted):
        waiting.kill_self()
    end(waiting)  # in its back-off
    with pytest.raises(moo.ActorDied) as caught:
        waiting.echo()
    assert caught.value.cause.kind == ("killed" if end is moo.kill else "stopped")


def test_a_stop_that_meets_a_death_ends_the_next_incarnation(spawn: Any) -> None:
    for _ in range(10):
        counter = spawn(moo.on(Counter, restart=moo.Restart(max=3)))
        os.kill(counter.pid(), signal.SIGKILL)  # nobody is told yet
        moo.stop(counter, timeout=30)
        with pytest.raises(moo.ActorDied):
            counter.echo()


# -- events ----------------------------------------------------------------


def test_monitor_tells_each_event_once(spawn: Any) -> None:
    counter = spawn(moo.on(Counter, restart=moo.Restart(max=1)))
    counter.echo()

    async def names(monitor: Any) -> list[str]:
        return [type(event).__name__ async for event in monitor]

    other = moo.monitor(counter)
    with moo.monitor(counter) as events:
        assert isinstance(next(events), moo.Started)
        counter.kill_self.remote()
        died = next(events)
        assert isinstance(died, moo.Died)
        assert died.cause.signal == signal.SIGKILL
        assert isinstance(next(events), moo.Restarted)
        moo.kill(counter)
        stopped = next(events)
        assert isinstance(stopped, moo.Stopped)
        assert stopped.cause.kind == "killed"
        assert list(events) == []
    heard = asyncio.run(names(other))
    assert heard == ["Started", "Died", "Restarted", "Stopped"]
    assert asyncio.run(names(moo.monitor(counter))) == heard[-1:]  # for who comes late
