# SPDX-License-Identifier: MIT
"""Refs that are handed on between three hosts, whose messages are lost on the way."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.process.current import current_runtime
from tests.conftest import eventually
from tests.process.breaking import MARK, failure_of
from tests.process.guest import Guest
from tests.process.hosts import Hosts, Proxy, hosts


@pytest.fixture
def three() -> Iterator[Hosts]:
    with hosts("a", "b", "c") as made:
        yield made


def a_user(three: Hosts) -> Any:
    """An actor that Refs are handed on to. Calls go straight there."""
    user = three.start("c", Guest)
    assert user.add(0) == 0
    return user


def maker_and_user(three: Hosts) -> tuple[Any, Any, Proxy]:
    """Messages of the one to the other go through a proxy, all else does not."""
    maker, user = three.start("b", Guest), a_user(three)
    assert maker.add(0) == 0
    proxy = three.agent.proxy(user._actor_id)
    assert maker.hand_on(user, 10) == 10
    return maker, user, proxy


def promised(maker: Any, user: Any) -> tuple[Any, Any]:
    """A result that comes in a while; its maker has promised to send it."""
    before = maker.nap.remote(0.2)  # then it reads what has come meanwhile
    maker.nap.tell(0.5)
    ref = maker.text.remote(MARK)
    use = user.length.remote(ref)
    assert before.get(timeout=20) == 0.2
    owed = current_runtime().handovers._owed
    assert eventually(lambda: not ref.done() and all(o.promised for o in owed.values()))
    return ref, use


def nothing_is_kept(*actors: Any) -> bool:
    def kept() -> int:
        all_statistics = [actor.statistics() for actor in actors]
        all_statistics.append(current_runtime().statistics())
        return sum(one["values_pending"] + one["relayed"] for one in all_statistics)

    return eventually(lambda: kept() == 0)


def test_a_promised_value_comes_after_a_break_and_one_that_was_lost_is_told_of(
    three: Hosts,
) -> None:
    maker, user, proxy = maker_and_user(three)
    _, use = promised(maker, user)
    assert proxy.cut() == 1
    assert use.get(timeout=20) == MARK
    assert nothing_is_kept(maker, user)

    assert maker.hand_on.remote(user, 10, retries=5).get(timeout=20) == 10
    before = proxy.within()
    proxy.hold()
    ref, use = promised(maker, user)
    assert len(ref.get(timeout=20)) == MARK
    assert eventually(lambda: proxy.within() - before > MARK)
    assert proxy.cut() == 1
    assert "was cut off" in str(failure_of(use))
    assert user.add(8) == 8
    assert nothing_is_kept(maker, user)


def test_a_broadcast_goes_on_though_its_holder_was_not_told(three: Hosts) -> None:
    """The first of host b does not learn that it is the holder: that was lost. The
    second asks it afterwards."""
    first, second = (three.start("b", Guest) for _ in range(2))
    proxy = three.proxy_to(first._actor_id)
    data = np.ones(8 << 20, np.uint8)
    for guest in (first, second):
        assert guest.total(data) == 8 << 20
    three.kill(second, signal.SIGSTOP)
    before = proxy.within()
    proxy.hold()
    ref = moo.put(data)
    calls = [guest.total.remote(ref) for guest in (first, second)]
    assert eventually(lambda: proxy.within() > before)
    assert eventually(lambda: current_runtime().statistics()["relayed"])
    proxy.cut()
    assert "broke" in str(failure_of(calls[0]))
    three.kill(second, signal.SIGCONT)
    assert calls[1].get(timeout=20) == 8 << 20
    assert first.add(1) == second.add(1) == 1
    del ref, calls
    assert nothing_is_kept(first, second)
