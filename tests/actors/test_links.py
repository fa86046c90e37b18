# SPDX-License-Identifier: MIT
from __future__ import annotations

import signal
import time
from typing import Any

import pytest

import mooactor as moo
from tests.actors.counter import Counter
from tests.conftest import eventually

RESTARTS = moo.Restart(max=100)


def restarts(handle: Any) -> int:
    (found,) = [i.restarts for i in moo.actors() if i.id == handle._actor_id]
    return found


def test_linked_actors_die_together_also_through_others(spawn: Any) -> None:
    first, second, third, free = (spawn(Counter) for _ in range(4))
    moo.link(first, second)
    moo.link(third, second)
    ref = third.sleep.remote(60)
    first.kill_self.tell(signal.SIGSEGV)
    error = ref.exception(timeout=20)
    assert isinstance(error, moo.ActorDied)
    assert error.cause.kind == "link" and error.cause.actor == "Counter"
    assert error.cause.origin.signal == signal.SIGSEGV
    assert "killed by its link to Counter: killed by signal 11" in str(error)
    with pytest.raises(moo.ActorDied):
        second.echo()
    assert free.echo(1) == 1


def test_a_kill_goes_over_a_link_and_a_stop_does_not(spawn: Any) -> None:
    first, second, third = (spawn(Counter) for _ in range(3))
    moo.link(first, second)
    moo.link(second, third)
    moo.stop(first)
    assert second.echo(1) == 1
    moo.kill(second)
    error = third.sleep.remote(60).exception(timeout=20)
    assert isinstance(error, moo.ActorDied) and error.cause.kind == "link"


def test_an_exit_with_code_0_does_not_go_over_a_link(spawn: Any) -> None:
    first, second = spawn(Counter), spawn(Counter)
    moo.link(first, second)
    with pytest.raises(moo.ActorDied):
        first.exit(0)
    assert second.echo(1) == 1


def test_a_link_outlasts_restarts_and_each_death_counts_once(spawn: Any) -> None:
    pair = [spawn(moo.on(Counter, restart=RESTARTS)) for _ in range(2)]
    moo.link(*pair)
    moo.link(*reversed(pair))  # the same one
    for round_, one in enumerate([*pair, *pair], 1):
        with pytest.raises(moo.ActorRestarted):
            one.kill_self()
        for handle in pair:
            assert eventually(lambda handle=handle: restarts(handle) == round_)
            assert handle.echo.options(retries=9)(1) == 1
    assert [restarts(handle) for handle in pair] == [4, 4]


def test_unlinked_actors_live_on(spawn: Any) -> None:
    first, second = spawn(Counter), spawn(Counter)
    moo.link(first, second)
    moo.unlink(second, first)
    moo.unlink(second, first)
    moo.kill(first)
    assert second.echo(1) == 1


def test_an_actor_that_is_over_cannot_be_linked(spawn: Any) -> None:
    first, second = spawn(Counter), spawn(Counter)
    moo.kill(first)
    for pair in ((first, second), (second, first)):
        with pytest.raises(moo.ActorUnavailable, match="has ended and cannot be"):
            moo.link(*pair)
    assert second.echo(1) == 1


def test_a_link_and_a_supervisor_go_together(spawn: Any) -> None:
    child = moo.child(Counter)
    supervisor = spawn(moo.Supervisor, [child])
    partner = spawn(moo.on(Counter, restart=RESTARTS))
    moo.link(supervisor.child(child), partner)
    partner.kill_self.tell()
    assert eventually(lambda: restarts(supervisor.child(child)) == 1)
    assert supervisor.child(child).echo.options(retries=9)(1) == 1
    assert partner.echo.options(retries=9)(1) == 1


def test_an_actor_may_link_itself_with_others(spawn: Any) -> None:
    @moo.actor
    class Clings:
        def cling(self, other: Any) -> None:
            moo.link(moo.current().handle, other)

        def sleep(self) -> None:
            time.sleep(60)

    clinging, other = spawn(Clings), spawn(Counter)
    clinging.cling(other)
    ref = clinging.sleep.remote()
    moo.kill(other)
    error = ref.exception(timeout=20)
    assert isinstance(error, moo.ActorDied) and error.cause.kind == "link"
