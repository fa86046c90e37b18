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
from tests.process.breaking import failure_of, lose, objects, to_guest
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
    """What the one sends to the other goes through a proxy, all else does not."""
    maker, user = three.start("b", Guest), a_user(three)
    assert maker.add(0) == 0
    proxy = three.agent.proxy(user._actor_id)
    assert maker.hand_on(user, 10) == 10
    return maker, user, proxy


def hand_on(ref: Any, user: Any) -> tuple[Any, Any]:
    return ref, user.add.remote(ref)


def promised(maker: Any, user: Any, seconds: float) -> tuple[Any, Any]:
    """A result that comes in so many seconds; its maker has promised to send it."""
    before = maker.nap.remote(0.2)  # then it reads what has come meanwhile
    ref, use = hand_on(maker.nap.remote(seconds), user)
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


def test_a_result_is_handed_on_though_the_request_was_lost_with_its_call(
    three: Hosts,
) -> None:
    user = a_user(three)
    maker, proxy = to_guest(three)
    assert maker.add(0) == 0
    again = maker.add.options(retries=1)
    ref, use = lose(maker, proxy, lambda: hand_on(again.remote(7), user))
    assert ref.get(timeout=20) == use.get(timeout=20) == 7
    assert nothing_is_kept(maker, user)


def test_it_is_though_the_answer_was_lost(three: Hosts) -> None:
    user = a_user(three)
    driver = current_runtime().process_id
    assert eventually(lambda: three.agent.members[driver].place)
    proxy = three.agent.proxy(driver)
    maker = three.start("b", Guest)
    assert maker.add(0) == 0
    before = proxy.came
    proxy.hold()
    ref, use = hand_on(maker.add.options(retries=1).remote(7), user)
    assert eventually(lambda: proxy.came > before)
    proxy.cut()
    assert ref.get(timeout=20) == use.get(timeout=20) == 7
    assert nothing_is_kept(maker, user)


def test_a_call_that_was_lost_ends_those_that_its_result_was_handed_on_to(
    three: Hosts,
) -> None:
    user = a_user(three)
    maker, proxy = to_guest(three)
    assert maker.add(0) == 0
    ref, use = lose(maker, proxy, lambda: hand_on(maker.add.remote(7), user))
    assert "was cut off" in str(failure_of(ref))
    assert "was cut off" in str(failure_of(use))
    assert user.add(8) == 8
    assert nothing_is_kept(maker, user)


def test_a_borrowed_value_is_handed_on_though_the_request_was_lost(
    three: Hosts,
) -> None:
    user = a_user(three)
    owner, proxy = to_guest(three)
    (ref,) = owner.put(1000)
    assert user.total(ref) == 1000
    use = lose(owner, proxy, lambda: user.total.remote(ref))
    assert use.get(timeout=20) == 1000
    assert nothing_is_kept(owner, user)


def test_it_is_though_nobody_else_holds_it_any_more(three: Hosts) -> None:
    user = a_user(three)
    owner, proxy = to_guest(three)
    (ref,) = owner.put(1000)

    def send() -> Any:
        nonlocal ref
        use, ref = user.total.remote(ref), None
        return use

    use = lose(owner, proxy, send)
    owner.drop.options(retries=9)()
    assert use.get(timeout=20) == 1000
    assert nothing_is_kept(owner, user)
    assert eventually(lambda: owner.statistics()["objects"] == 0)
    assert objects() == 0


def test_a_value_that_its_maker_still_has_to_send_survives_a_break(
    three: Hosts,
) -> None:
    maker, user, proxy = maker_and_user(three)
    _, use = promised(maker, user, 1.0)
    assert proxy.cut() == 1
    assert use.get(timeout=20) == 1.0
    assert nothing_is_kept(maker, user)


def test_so_it_does_when_the_other_connection_of_the_two_breaks(three: Hosts) -> None:
    maker, user = three.start("b", Guest), a_user(three)
    assert maker.add(0) == 0
    proxy = three.agent.proxy(maker._actor_id)
    assert user.hand_on(maker, 10) == 10
    _, use = promised(maker, user, 1.0)
    assert proxy.cut() == 1
    assert use.get(timeout=20) == 1.0
    assert nothing_is_kept(maker, user)


def test_who_waits_for_a_value_that_was_lost_is_told(three: Hosts) -> None:
    maker, user, proxy = maker_and_user(three)
    before = proxy.came
    proxy.hold()
    ref, use = promised(maker, user, 0.5)
    assert ref.get(timeout=20) == 0.5
    assert eventually(lambda: proxy.came > before)
    assert proxy.cut() == 1
    assert "was cut off" in str(failure_of(use))
    assert user.add(8) == 8
    assert nothing_is_kept(maker, user)


def test_so_is_one_whose_call_came_after_that(three: Hosts) -> None:
    """The first message to an actor may take long, while another process is near."""
    maker, user = three.start("b", Guest), three.start("c", Guest)
    assert maker.add(0) == 0
    assert eventually(lambda: three.agent.members[user._actor_id].place)
    slow = three.agent.proxy(user._actor_id)
    assert user.add(0) == 0
    proxy = three.agent.proxy(user._actor_id)
    try:
        assert maker.hand_on(user, 10) == 10
        slow.hold()
        before = proxy.came
        proxy.hold()
        ref, use = promised(maker, user, 0.5)
        assert ref.get(timeout=20) == 0.5
        assert eventually(lambda: proxy.came > before)
        assert proxy.cut() == 1
        assert maker.hand_on.remote(user, 10, retries=5).get(timeout=20) == 10
        slow.go_on()
        assert "was cut off" in str(failure_of(use))
        # From here on there is nothing to be lost.
        assert user.add.remote(maker.nap.remote(0.1)).get(timeout=20) == 0.1
        assert nothing_is_kept(maker, user)
    finally:
        slow.close()


def test_a_value_that_its_caller_sent_in_vain_holds_nobody_up(three: Hosts) -> None:
    """The connection over which it was sent broke, and with that the call ended."""
    maker, through = to_guest(three)
    user = three.start("c", Guest)
    assert eventually(lambda: three.agent.members[user._actor_id].place)
    proxy = three.agent.proxy(user._actor_id)
    assert user.add(0) == maker.add(0) == 0
    again = maker.nap.options(retries=1)
    ref, use = lose(maker, through, lambda: hand_on(again.remote(1.0), user))
    before = proxy.came
    proxy.hold()
    assert ref.get(timeout=20) == 1.0
    assert eventually(lambda: proxy.came > before)
    assert proxy.cut() == 1
    assert isinstance(failure_of(use), moo.ActorUnavailable)
    assert user.add(8) == 8  # which waits for its turn
    assert nothing_is_kept(maker, user)


def test_a_broadcast_goes_on_though_its_holder_was_not_told(three: Hosts) -> None:
    """The first of host b does not learn that it is the holder: that was lost. The
    second asks it afterwards."""
    first, second = (three.start("b", Guest) for _ in range(2))
    for guest in (first, second):
        assert eventually(
            lambda guest=guest: three.agent.members[guest._actor_id].place
        )  # type: ignore[misc]
    proxy = three.agent.proxy(first._actor_id)
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
