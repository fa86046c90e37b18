# SPDX-License-Identifier: MIT
"""Connections between two hosts that break while both processes live: what was under
way ends or is made again, in order, and all goes on. And stops that meet a break."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.control import envelope
from mooactor.control.envelope import Epochs, is_later, next_epoch
from mooactor.process import deaths
from mooactor.process.current import current_runtime
from mooactor.process.exits import ExitRecord
from mooactor.process.objects import audit
from tests.conftest import eventually
from tests.process.breaking import failure_of, from_guest, lose, objects, to_guest
from tests.process.hosts import Hosts, hosts

MB = 1 << 20
WAIT_S = 20.0  # less than the time for which answers are waited for without a GOAWAY
STOPPED = ExitRecord("stopped", exitcode=0)


@pytest.fixture
def two() -> Iterator[Hosts]:
    with hosts("a", "b") as made:
        yield made


def pending() -> int:
    return int(current_runtime().statistics()["calls_pending"])


# -- what a break does to each operation ----------------------------------------


@pytest.mark.parametrize(
    ("way", "why"),
    [(to_guest, "to it at .*, on host b, broke"), (from_guest, "connection to here")],
)
def test_what_is_under_way_ends_or_is_made_again_and_all_goes_on(
    two: Hosts, capfd: pytest.CaptureFixture[str], way: Any, why: str
) -> None:
    guest, proxy = way(two)
    assert guest.add(0) == 0
    proxy.hold()
    before = proxy.came
    calls = [guest.add.remote(number) for number in range(1, 6)]
    guest.mark.tell()
    again = guest.add.options(retries=1).remote(6)
    assert eventually(lambda: proxy.came > before)  # the calls, or their answers
    proxy.cut()
    failures = [failure for ref in calls if (failure := failure_of(ref))]
    assert failures
    for failure in failures:
        assert re.search(why, str(failure)) and "was cut off" in str(failure)
        assert failure.delivered is None
    assert (again.get(timeout=WAIT_S), guest.add(7)) == (6, 7)
    seen = guest.all_seen()
    assert seen == sorted(seen) and {0, 6, 7} <= set(seen)
    assert len(seen) <= len(set(seen)) + 1  # the one with retries may run twice
    said = [""]

    def is_said() -> bool:
        said[0] += capfd.readouterr().err
        return "1 tell to Guest may not have run" in said[0]

    assert way is from_guest or eventually(is_said), said
    assert pending() == 0

    items = guest.items(1_000_000)
    assert [next(items) for _ in range(50)] == list(range(50))
    assert proxy.cut() == 1
    with pytest.raises(moo.ActorUnavailable):
        list(items)
    assert eventually(lambda: guest.running() == 1)  # the call that asks
    assert list(guest.items(3)) == [0, 1, 2]

    (ref,) = guest.put(1000)
    proxy.hold()
    before = proxy.came
    fetched = current_runtime().values.fetch(
        guest._where()[1].process_id, ref.home.object_id, lambda value: None
    )
    assert eventually(lambda: proxy.came > before)
    proxy.cut()
    assert current_runtime().wait(fetched, WAIT_S)
    assert isinstance(fetched.failure(), moo.ActorUnavailable)
    assert int(ref.get(timeout=WAIT_S).sum()) == 1000


# -- order, and at most once -------------------------------------------------------


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
    assert over.wait(WAIT_S)
    proxy.cut()
    assert moo.get(refs, timeout=WAIT_S) == [1, 2]
    assert guest.all_seen() == [0, 1, 2]


def test_calls_made_after_a_break_start_after_those_that_are_made_again(
    two: Hosts,
) -> None:
    guest, proxy = to_guest(two)
    again = guest.add.options(retries=100)
    refs, over = [again.remote(0)], threading.Event()

    def go_on_calling() -> None:
        while not over.wait(0.001):
            refs.append(again.remote(len(refs)))

    def more() -> bool:
        before = len(refs)
        return eventually(lambda: len(refs) > before + 20)

    assert refs[0].get(timeout=WAIT_S) == 0
    thread = threading.Thread(target=go_on_calling)
    thread.start()
    for _ in range(5):
        proxy.hold()  # what is sent now is lost
        assert more()
        proxy.refusing = True
        proxy.cut()
        assert more()
        proxy.refusing = False
        refs[-1].get(timeout=WAIT_S)
    over.set()
    thread.join()
    assert moo.get(refs, timeout=WAIT_S) == list(range(len(refs)))
    last = {number: place for place, number in enumerate(guest.all_seen())}
    assert sorted(last, key=last.__getitem__) == list(range(len(refs)))


# -- what is kept -----------------------------------------------------------------


def test_nothing_is_kept_of_what_broke(
    two: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "ARRIVED_S", 0.5)
    guest, proxy = to_guest(two)
    assert guest.add(0) == 0
    refs = [moo.put(np.ones(MB, np.uint8))]
    call = lose(guest, proxy, lambda: guest.look_in.remote(refs))
    with pytest.raises(moo.ActorUnavailable):
        call.get(timeout=WAIT_S)
    refs.clear()
    for number in range(4):
        ref = guest.add.remote(number)
        proxy.cut()
        failure_of(ref)
    big = np.ones(16 * MB, np.uint8)
    again = guest.total.options(retries=9).remote(big)
    proxy.cut()
    assert again.get(timeout=WAIT_S) == big.nbytes
    del call, ref, again
    runtime = current_runtime()
    statistics = runtime.statistics()
    assert (statistics["calls_pending"], statistics["values_pending"]) == (0, 0)
    assert runtime.messenger.ways is not None and len(runtime.messenger.ways) == 1
    assert runtime.messenger.waiting() == 0
    assert eventually(lambda: objects() == 0)


def test_what_comes_of_an_earlier_connection_is_dropped() -> None:
    epochs = Epochs({9}.__contains__)
    assert epochs.admit(7, 1) and epochs.admit(7, 1) and epochs.admit(7, 2)
    assert not epochs.admit(7, 1)
    assert epochs.admit(7, 2) and epochs.admit(8, 1)
    assert epochs.late == 1
    epochs.forget(7)
    assert epochs.admit(7, 5)
    assert not epochs.admit(9, 1)  # it counts as dead
    epoch = 5
    for _ in range(600):  # they go round, and never come to nought
        assert epochs.admit(7, epoch)
        following = next_epoch(epoch)
        assert 1 <= following <= 255 and is_later(following, epoch)
        assert not is_later(epoch, following) and not is_later(epoch, epoch)
        epoch = following


# -- stops ------------------------------------------------------------------------


def stop(two: Hosts, guest: Any) -> None:
    """It ends; nobody is told of it."""
    current_runtime().sender.post(guest._actor_id, envelope.STOP, 0)
    assert two.children[guest._actor_id].wait(WAIT_S) == 0


def tell_of_end(two: Hosts, guest: Any) -> None:
    two.agent.tell_of_death(guest._actor_id, STOPPED)
    _, link = guest._where()
    assert eventually(lambda: link.cause is not None)


def end_of(ref: Any) -> Any:
    """A call's value, or the `delivered` of its error."""
    error = ref.exception(timeout=WAIT_S)
    if error is None:
        return ref.get()
    assert isinstance(error, moo.ActorDied | moo.ActorUnavailable)
    return error.delivered


@pytest.mark.parametrize(
    ("comes", "ran", "late"),
    [("at once", True, False), ("late", True, False), ("never", None, None)],
)
def test_callers_of_a_stopped_actor_know_which_calls_ran(
    two: Hosts, monkeypatch: pytest.MonkeyPatch, comes: str, ran: Any, late: Any
) -> None:
    """Its answers come before the news of its end, later, or are lost."""
    guest, proxy = from_guest(two)
    assert guest.add(0) == 0
    if comes != "at once":
        proxy.hold()
    if comes == "late":
        monkeypatch.setattr(deaths, "_CUT_OFF_S", 1e9)
    refs = [guest.add.remote(number) for number in range(1, 10)]
    stop(two, guest)
    too_late = [guest.add.remote(number) for number in range(77, 80)]
    tell_of_end(two, guest)
    if comes == "late":
        assert not refs[0].done() and not too_late[0].done()
        proxy.go_on()
    elif comes == "never":
        proxy.cut()
    values = list(range(1, 10)) if ran else [None] * 9
    assert [end_of(ref) for ref in refs] == values
    assert [end_of(ref) for ref in too_late] == [late] * 3
    runtime = current_runtime()
    assert eventually(lambda: not runtime.deaths._last_words)
