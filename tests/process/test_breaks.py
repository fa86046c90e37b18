# SPDX-License-Identifier: MIT
"""Connections between hosts that break: what was under way ends, and all goes on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.control.envelope import is_later, next_epoch
from mooactor.control.epochs import Epochs
from mooactor.control.links import Resending
from mooactor.process.arguments import Arguments
from mooactor.process.current import current_runtime
from mooactor.process.losses import Losses
from tests.conftest import eventually
from tests.process.guest import Guest, Slow
from tests.process.hosts import Hosts, Proxy

MB = 1 << 20
MARK = 30_000  # bytes: it travels beside no data, and through the buffers of a socket


def to_guest(two: Hosts) -> tuple[Any, Proxy]:
    """An actor whose calls go through a proxy; its replies come straight."""
    guest = two.start("b", Guest)
    actor_id = guest._actor_id
    assert eventually(lambda: two.agent.members[actor_id].place)
    return guest, two.agent.proxy(actor_id)


def lose(guest: Any, proxy: Proxy, send: Callable[[], Any]) -> Any:
    """Lose what `send` sends to the guest on its way, and return what `send` does."""
    before = proxy.within()
    proxy.hold()
    sent = send()
    mark = guest.length.remote("x" * MARK)  # it comes after that
    assert eventually(lambda: proxy.within() - before > MARK)
    assert proxy.cut() == 1
    assert isinstance(failure_of(mark), moo.ActorUnavailable)
    return sent


def from_guest(two: Hosts) -> tuple[Any, Proxy]:
    """One whose replies come through a proxy; calls go straight."""
    driver = current_runtime().process_id
    assert eventually(lambda: two.agent.members[driver].place)
    proxy = two.agent.proxy(driver)
    return two.start("b", Guest), proxy


def test_calls_under_way_end_and_later_ones_go_through(two: Hosts) -> None:
    guest, proxy = to_guest(two)
    assert guest.add(0) == 0
    numbers = range(1, 6)
    for ref in lose(guest, proxy, lambda: [guest.add.remote(n) for n in numbers]):
        with pytest.raises(moo.ActorUnavailable, match="on host b, broke") as caught:
            ref.get(timeout=20)
        assert caught.value.delivered is None
    assert [guest.add(number) for number in (6, 7)] == [6, 7]
    seen = guest.all_seen()
    assert seen == sorted(set(seen)) and {0, 6, 7} <= set(seen)
    assert current_runtime().statistics()["calls_pending"] == 0


def test_a_call_that_runs_ends_for_its_caller_and_runs_on(two: Hosts) -> None:
    slow = two.start("b", Slow)
    actor_id = slow._actor_id
    assert eventually(lambda: two.agent.members[actor_id].place)
    proxy = two.agent.proxy(actor_id)
    ref = slow.wait.remote(1000)
    assert eventually(lambda: asyncio.run(slow.count()) == 1)
    proxy.cut()
    with pytest.raises(moo.ActorUnavailable, match="was cut off"):
        ref.get(timeout=20)
    assert asyncio.run(slow.count()) == 1


def test_replies_that_were_lost_are_told_by_the_other_side(two: Hosts) -> None:
    guest, proxy = from_guest(two)
    assert guest.add(0) == 0
    before = proxy.came
    proxy.hold()
    lost = [guest.add.remote(number) for number in range(1, 6)]
    assert eventually(lambda: proxy.came > before)  # a reply
    proxy.cut()
    failures = [failure for ref in lost if (failure := failure_of(ref))]
    assert failures
    for failure in failures:
        assert "connection to here" in str(failure) and failure.delivered is None
    assert guest.add(6) == 6
    assert guest.all_seen() == [0, 1, 2, 3, 4, 5, 6]
    assert guest.breaks() == 1
    assert current_runtime().statistics()["calls_pending"] == 0


@pytest.mark.parametrize("way", [to_guest, from_guest])
def test_calls_with_retries_are_made_again(two: Hosts, way: Any) -> None:
    guest, proxy = way(two)
    assert guest.add(0) == 0
    proxy.hold()
    again = guest.add.options(retries=1)
    refs = [again.remote(number) for number in range(1, 6)]
    time.sleep(0.2)  # as above
    proxy.cut()
    assert moo.get(refs, timeout=20) == [1, 2, 3, 4, 5]
    assert set(guest.all_seen()) == set(range(6))


def test_calls_that_have_not_left_when_a_connection_breaks_start_in_their_order(
    two: Hosts,
) -> None:
    guest, proxy = to_guest(two)
    assert guest.add(0) == 0
    again, before = guest.add.options(retries=9), proxy.within()
    proxy.hold()
    refs, over = [again.remote(1)], threading.Event()
    assert eventually(lambda: proxy.within() > before)
    runtime = current_runtime()
    ways = runtime.messenger.ways
    assert ways is not None
    way = ways.known(guest._where()[1].process_id)

    def breaks() -> None:
        refs.append(again.remote(2))  # it waits for others, to leave with them
        ways._break(way)
        over.set()

    runtime.housekeeper.at(0.0, breaks)
    assert over.wait(20)
    proxy.cut()
    assert moo.get(refs, timeout=20) == [1, 2]
    assert guest.all_seen() == [0, 1, 2]


def test_a_call_that_is_made_while_others_are_made_again_starts_after_them(
    two: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was on its way to be sent when that began."""
    guest, proxy = to_guest(two)
    assert guest.add(0) == 0
    begun, go, past = threading.Event(), threading.Event(), threading.Event()
    encode, send_again, wait = Arguments.encode, Losses.send_again, Resending.wait

    def held_up(self: Any, link: Any, args: Any, *rest: Any) -> Any:
        if args == (2,):
            begun.set()
            assert go.wait(20)
        return encode(self, link, args, *rest)

    def slowly(self: Any, *what: Any) -> None:
        go.set()
        assert past.wait(20)
        send_again(self, *what)

    def noticed(self: Any) -> None:
        past.set()
        wait(self)

    monkeypatch.setattr(Arguments, "encode", held_up)
    monkeypatch.setattr(Losses, "send_again", slowly)
    monkeypatch.setattr(Resending, "wait", noticed)
    again = guest.add.options(retries=9)

    def call_late() -> None:
        refs.append(again.remote(2))
        past.set()

    proxy.hold()
    refs, thread = [again.remote(1)], threading.Thread(target=call_late)
    thread.start()
    assert begun.wait(20)
    proxy.cut()
    thread.join(40)
    assert moo.get(refs, timeout=20) == [1, 2]
    assert guest.all_seen() == [0, 1, 2]


def test_calls_made_after_a_break_start_after_those_that_are_made_again(
    two: Hosts,
) -> None:
    guest, proxy = to_guest(two)
    again = guest.add.options(retries=100)
    refs, over = [again.remote(0)], threading.Event()

    def go_on_calling() -> None:
        while not over.is_set():
            refs.append(again.remote(len(refs)))
            time.sleep(0.001)

    assert refs[0].get(timeout=20) == 0
    thread = threading.Thread(target=go_on_calling)
    thread.start()
    for _ in range(5):
        before = len(refs)
        proxy.hold()  # what is sent now is lost
        assert eventually(lambda before=before: len(refs) > before + 20)
        proxy.refusing = True
        proxy.cut()
        before = len(refs)
        assert eventually(lambda before=before: len(refs) > before + 20)
        proxy.refusing = False
        assert refs[-1].get(timeout=20) > before
    over.set()
    thread.join()
    assert moo.get(refs, timeout=20) == list(range(len(refs)))
    seen = guest.all_seen()
    last = {number: place for place, number in enumerate(seen)}
    assert sorted(last, key=last.__getitem__) == list(range(len(refs)))


@pytest.mark.slow
def test_both_connections_at_once_cost_two_retries_at_most(two: Hosts) -> None:
    """One, if the other side knows of its break before the call comes again."""
    guest = two.start("b", Guest)
    driver, actor_id = current_runtime().process_id, guest._actor_id
    for process_id in (driver, actor_id):
        reachable = two.agent.members[process_id]
        assert eventually(lambda reachable=reachable: reachable.place)
    proxies = [two.agent.proxy(one) for one in (driver, actor_id)]
    assert guest.add(0) == 0
    for number in range(1, 6):
        ref = guest.nap.options(retries=2).remote(0.3)
        time.sleep(0.1)
        for proxy in proxies:
            proxy.cut()
        assert ref.get(timeout=20) == 0.3
        assert guest.add(number) == number


@pytest.mark.parametrize("way", [to_guest, from_guest])
def test_a_stream_ends_on_both_sides(two: Hosts, way: Any) -> None:
    guest, proxy = way(two)
    items = guest.items(1_000_000)
    assert [next(items) for _ in range(50)] == list(range(50))
    assert proxy.cut() == 1
    with pytest.raises(moo.ActorUnavailable):
        list(items)
    assert eventually(lambda: guest.running() == 1)  # the call that asks
    assert list(guest.items(3)) == [0, 1, 2]


@pytest.mark.parametrize("way", [to_guest, from_guest])
def test_a_value_on_its_way_is_not_waited_for(two: Hosts, way: Any) -> None:
    guest, proxy = way(two)
    (ref,) = guest.put(1000)
    proxy.hold()
    before = proxy.came
    fetched = current_runtime().values.fetch(
        guest._where()[1].process_id, ref.home.object_id, lambda value: None
    )
    assert eventually(lambda: proxy.came > before)
    proxy.cut()
    assert current_runtime().wait(fetched, 20)
    assert isinstance(fetched.failure(), moo.ActorUnavailable)
    assert int(ref.get(timeout=20).sum()) == 1000


def failure_of(ref: Any) -> moo.ActorUnavailable | None:
    try:
        ref.get(timeout=20)
    except moo.ActorUnavailable as error:
        return error
    return None


def test_tells_that_may_be_lost_are_said_so(two: Hosts, capfd: Any) -> None:
    guest, proxy = to_guest(two)
    guest.add(0)
    lose(guest, proxy, lambda: [guest.add.tell(number) for number in range(3)])
    assert guest.add.options(retries=9).remote(9).get(timeout=20) == 9
    said = [""]

    def is_said() -> bool:
        said[0] += capfd.readouterr().err
        return "3 tells to Guest may not have run" in said[0]

    assert eventually(is_said), said


@pytest.mark.slow
def test_who_cannot_be_reached_for_long_is_said_so(
    two: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    for which in ("PATIENCE_S", "BUSY_PATIENCE_S"):
        monkeypatch.setattr(f"mooactor.control.ways.{which}", 0.3)
    guest, proxy = to_guest(two)
    proxy.refusing = True
    ref = guest.add.remote(1)
    with pytest.raises(moo.ActorUnavailable, match="no connection to it") as caught:
        ref.get(timeout=20)
    assert caught.value.delivered is False
    proxy.refusing = False
    assert eventually(lambda: works(guest))
    assert 1 not in guest.all_seen()


def works(guest: Any) -> bool:
    try:
        return bool(guest.add(2) == 2)
    except moo.ActorUnavailable:
        return False


@pytest.mark.slow
def test_data_under_way_survives_a_break_of_the_control_connection(
    two: Hosts,
) -> None:
    guest, proxy = to_guest(two)
    big = np.ones(64 * MB, np.uint8)
    assert guest.total(big) == 64 * MB
    proxy.cut()
    assert guest.total.options(retries=5).remote(big).get(timeout=60) == 64 * MB


@pytest.mark.slow
def test_nothing_is_kept_of_what_broke(two: Hosts) -> None:
    guest, proxy = to_guest(two)
    for number in range(10):
        ref = guest.add.remote(number)
        proxy.cut()
        try:
            ref.get(timeout=20)
        except moo.ActorUnavailable:
            pass
    assert guest.add.options(retries=9).remote(99).get(timeout=20) == 99
    statistics = current_runtime().statistics()
    assert (statistics["calls_pending"], statistics["values_pending"]) == (0, 0)
    runtime = current_runtime()
    assert runtime.messenger.ways is not None and len(runtime.messenger.ways) == 1
    assert runtime.messenger.waiting() == 0


# -- epochs ----------------------------------------------------------------


def test_what_comes_of_an_earlier_connection_is_dropped() -> None:
    epochs = Epochs({9}.__contains__)
    assert epochs.admit(7, 1) and epochs.admit(7, 1) and epochs.admit(7, 2)
    assert not epochs.admit(7, 1)
    assert epochs.admit(7, 2) and epochs.admit(8, 1)
    assert epochs.late == 1
    epochs.forget(7)
    assert epochs.admit(7, 5)
    assert not epochs.admit(9, 1)  # it counts as dead


def test_epochs_go_round_and_never_come_to_nought() -> None:
    epochs, epoch = Epochs(set().__contains__), 1
    for _ in range(600):
        assert epochs.admit(7, epoch)
        following = next_epoch(epoch)
        assert 1 <= following <= 255 and is_later(following, epoch)
        assert not is_later(epoch, following) and not is_later(epoch, epoch)
        epoch = following


def objects() -> int:
    """The number of values that this process has for others, or for itself."""
    runtime = current_runtime()
    runtime.objects.sweep()
    return int(runtime.statistics()["objects"])


@pytest.mark.slow
def test_a_value_whose_message_was_lost_is_not_kept_for_its_receiver(
    two: Hosts,
) -> None:
    guest, proxy = to_guest(two)
    assert guest.add(0) == 0
    refs = [moo.put(np.ones(MB, np.uint8))]
    call = lose(guest, proxy, lambda: guest.look_in.remote(refs))
    with pytest.raises(moo.ActorUnavailable):
        call.get(timeout=20)
    refs.clear()
    del call

    assert eventually(lambda: objects() == 0)


@pytest.mark.slow
def test_a_value_that_was_given_back_in_vain_is_not_kept(two: Hosts) -> None:
    guest, proxy = from_guest(two)
    ref = moo.put(np.ones(MB, np.uint8))
    assert guest.look_in([ref]) == MB
    guest.keep(ref_in := [ref])
    before = proxy.came
    proxy.hold()
    guest.drop.tell()
    assert eventually(lambda: proxy.came > before)  # what gives it back, or a reply
    proxy.cut()
    assert guest.add.options(retries=5)(1) == 1

    del ref, ref_in

    assert eventually(lambda: objects() == 0)
