# SPDX-License-Identifier: MIT
"""`moo.link`: actors that die together."""

from __future__ import annotations

import signal
from typing import Any

import pytest

import mooactor as moo
from tests.actors.counter import Counter
from tests.conftest import eventually

RESTARTS = moo.Restart(max=100)


def restarts(handle: Any) -> int:
    (found,) = [i.restarts for i in moo.actors() if i.id == handle._actor_id]
    return found


class Clings(Counter):
    def cling(self, other: Any) -> None:
        moo.link(moo.current().handle, other)


def test_a_death_goes_over_links_and_names_the_first(spawn: Any) -> None:
    first, second, free, partner = (spawn(Counter) for _ in range(4))
    third = spawn(Clings)
    moo.link(first, second)
    third.cling(second)
    moo.link(first, free)
    moo.unlink(free, first)
    moo.unlink(free, first)
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
    for pair in ((first, partner), (partner, first)):
        with pytest.raises(moo.ActorUnavailable, match="has ended and cannot be"):
            moo.link(*pair)
    assert partner.echo(1) == 1


def test_a_link_outlasts_restarts_and_each_death_counts_once(spawn: Any) -> None:
    child = moo.child(Counter)
    supervisor = spawn(moo.Supervisor, [child])
    pair = [spawn(moo.on(Counter, restart=RESTARTS)), supervisor.child(child)]
    moo.link(*pair)
    moo.link(*reversed(pair))  # the same one
    for round_, one in enumerate([*pair, pair[0]], 1):
        with pytest.raises(moo.ActorRestarted):
            one.kill_self()
        for handle in pair:
            assert eventually(lambda handle=handle: restarts(handle) == round_)
            assert handle.echo.options(retries=9)(1) == 1
    assert [restarts(handle) for handle in pair] == [3, 3]
