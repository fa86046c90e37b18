# SPDX-License-Identifier: MIT
from __future__ import annotations

import asyncio
import os
import pickle
import signal
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from tests.actors.counter import Counter, Remembers
from tests.gates import wait_at


def test_a_restarted_actor_takes_calls_again(spawn: Any) -> None:
    counter = spawn(moo.on(Counter, restart=moo.Restart(max=2)), 5)
    before = counter.pid()
    with pytest.raises(moo.ActorRestarted) as caught:
        counter.kill_self()
    assert caught.value.delivered is None
    assert caught.value.cause.signal == signal.SIGKILL
    assert counter.add(1) == 6  # made anew by the same constructor call
    assert counter.pid() != before


def test_the_budget_of_restarts_ends(spawn: Any) -> None:
    counter = spawn(moo.on(Counter, restart=moo.Restart(max=1)))
    with pytest.raises(moo.ActorRestarted):
        counter.kill_self()
    with pytest.raises(moo.ActorDied) as caught:
        counter.kill_self()
    assert not isinstance(caught.value, moo.ActorRestarted)
    with pytest.raises(moo.ActorDied):
        counter.echo(1)


def test_retries_send_a_call_again(spawn: Any, tmp_path: Any) -> None:
    marker = tmp_path / "ran"

    @moo.actor
    class Flaky:
        def work(self) -> str:
            import os

            if not marker.exists():
                marker.touch()
                os._exit(1)
            return "done"

    flaky = spawn(moo.on(Flaky, restart=moo.Restart(max=2)))
    assert flaky.work.options(retries=1)() == "done"


def test_state_comes_back_from_the_snapshot(spawn: Any) -> None:
    actor = spawn(moo.on(Remembers, restart=moo.Restart(max=2)))
    assert [actor.add(i) for i in range(3)] == [1, 2, 3]
    with pytest.raises(moo.ActorRestarted):
        actor.crash()
    assert actor.all() == [0, 1, 2]


def test_queued_calls_of_a_dead_incarnation_fail_and_do_not_hang(spawn: Any) -> None:
    counter = spawn(moo.on(Counter, restart=moo.Restart(max=1)))
    refs = [counter.kill_self.remote(), *[counter.echo.remote(i) for i in range(50)]]
    for ref in refs:
        assert isinstance(ref.exception(timeout=60), moo.ActorRestarted)
    assert counter.echo(1) == 1


def test_a_killed_or_stopped_actor_is_not_restarted(spawn: Any) -> None:
    for end in (moo.kill, moo.stop):
        counter = spawn(moo.on(Counter, restart=moo.Restart(max=3)))
        counter.echo()
        end(counter)
        with pytest.raises(moo.ActorDied):
            counter.echo()


def test_a_stop_during_a_back_off_ends_the_actor_at_once(spawn: Any) -> None:
    policy = moo.Restart(max=1, backoff=1000.0)
    counter = spawn(moo.on(Counter, restart=policy))
    with pytest.raises(moo.ActorRestarted):
        counter.kill_self()
    moo.stop(counter, timeout=30)
    with pytest.raises(moo.ActorDied) as caught:
        counter.echo()
    assert caught.value.cause.kind == "stopped"


def test_a_stop_that_meets_a_death_ends_the_next_incarnation(spawn: Any) -> None:
    for _ in range(10):
        counter = spawn(moo.on(Counter, restart=moo.Restart(max=3)))
        pid = counter.pid()
        os.kill(pid, signal.SIGKILL)  # nobody is told yet
        moo.stop(counter, timeout=30)
        with pytest.raises(moo.ActorDied):
            counter.echo()


def test_a_crash_before_a_stop_keeps_its_cause(spawn: Any) -> None:
    counter = spawn(Counter)
    counter.echo()
    ref = counter.kill_self.remote(signal.SIGSEGV)
    moo.stop(counter)
    error = ref.exception(timeout=20)
    assert isinstance(error, moo.ActorDied)
    assert (error.cause.kind, error.cause.signal) == ("signal", signal.SIGSEGV)


def test_a_constructor_that_fails_uses_up_restarts(spawn: Any) -> None:
    class Never:
        def __init__(self) -> None:
            raise RuntimeError("not today")

        def use(self) -> None: ...

    never = spawn(moo.on(Never, restart=moo.Restart(max=2)))
    with pytest.raises(moo.ActorDied) as caught:
        never.use()
    final = caught.value
    while isinstance(final, moo.ActorRestarted):
        with pytest.raises(moo.ActorDied) as caught:
            never.use()
        final = caught.value
    assert isinstance(final.cause.exception, RuntimeError)
    assert isinstance(final.__cause__, RuntimeError)


def test_monitor_tells_each_event_once(spawn: Any) -> None:
    counter = spawn(moo.on(Counter, restart=moo.Restart(max=1)))
    counter.echo()
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


def test_monitor_works_with_async_for(spawn: Any) -> None:
    import asyncio

    counter = spawn(Counter)
    counter.echo()

    async def main() -> list[str]:
        counter.exit.tell(3)
        return [type(event).__name__ async for event in moo.monitor(counter)]

    assert asyncio.run(main())[-1] == "Died"


def test_restart_policies_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="negative number"):
        moo.Restart(max=-1)
    with pytest.raises(ValueError, match="snapshot_every"):
        moo.Restart(snapshot_every=0)


def test_an_old_handle_reaches_the_present_incarnation_at_once(spawn: Any) -> None:
    counter = spawn(moo.on(Counter, restart=moo.Restart(max=100)))
    old = pickle.dumps(counter)
    for _ in range(3):
        with pytest.raises(moo.ActorRestarted):
            counter.kill_self()
        for _ in range(5):  # each meets the actor for the first time
            stranger = spawn(Counter)
            assert stranger.call(pickle.loads(old), "echo", 1) == 1
            moo.kill(stranger)


def test_names_are_free_again_after_the_death(spawn: Any) -> None:
    first = spawn(moo.on(Counter, name="only"), 1)
    assert moo.lookup("only") == first
    with pytest.raises(ValueError, match="'only' is taken"):
        moo.on(Counter, name="only").spawn()
    moo.kill(first)
    second = spawn(moo.on(Counter, name="only"), 2)
    assert moo.lookup("only").add(0) == 2
    assert second != first


def test_lookup_waits_for_a_name(spawn: Any) -> None:
    with pytest.raises(moo.ActorUnavailable, match="'later'"):
        moo.lookup("later")

    @moo.actor
    class Finder:
        def find(self) -> int:
            return int(moo.lookup("later", timeout=10).add(0))

    ref = spawn(Finder).find.remote()
    spawn(moo.on(Counter, name="later"), 9)
    assert ref.get(timeout=10) == 9


def test_stop_lets_queued_calls_finish_and_runs_on_stop(
    spawn: Any, tmp_path: Any
) -> None:
    out = tmp_path / "out"

    @moo.actor
    class Careful:
        def __init__(self) -> None:
            self.done = 0

        def work(self) -> int:
            self.done += 1
            return self.done

        def on_stop(self) -> None:
            out.write_text(str(self.done))

    careful = spawn(Careful)
    refs = [careful.work.remote() for _ in range(20)]
    moo.stop(careful)
    assert moo.get(refs) == list(range(1, 21))
    assert out.read_text() == "20"


def test_placement_that_cannot_be_is_refused(session: Any) -> None:
    with pytest.raises(moo.PlacementError, match="elsewhere"):
        moo.on(Counter, host="elsewhere").spawn()
    with pytest.raises(moo.PlacementError, match="CPUs"):
        moo.on(Counter, num_cpus=100_000).spawn()


def test_environment_variables_are_set_before_the_constructor(spawn: Any) -> None:
    @moo.actor
    class Reads:
        def __init__(self) -> None:
            import os

            self.value = os.environ.get("MOO_TEST")

        def get(self) -> str | None:
            return self.value

    assert spawn(moo.on(Reads, env={"MOO_TEST": "yes"})).get() == "yes"


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
        while not self.gate.exists():
            await asyncio.sleep(0.001)
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
