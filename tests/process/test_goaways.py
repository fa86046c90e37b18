# SPDX-License-Identifier: MIT
"""An actor of another host is stopped: its callers know at once which calls ran."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import mooactor as moo
from mooactor.control import envelope
from mooactor.process import deaths
from mooactor.process.current import current_runtime
from mooactor.process.exits import ExitRecord
from tests.conftest import eventually
from tests.process.guest import Guest
from tests.process.hosts import Hosts, Proxy

WAIT_S = 20.0  # less than the time for which answers are waited for without a GOAWAY
STOPPED = ExitRecord("stopped", exitcode=0)


@pytest.fixture
def guest(two: Hosts) -> Any:
    return two.start("b", Guest)


@pytest.fixture
def proxy(two: Hosts) -> Proxy:
    """What the actor sends comes through it."""
    driver = current_runtime().process_id
    assert eventually(lambda: two.agent.members[driver].place)
    return two.agent.proxy(driver)


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


def test_calls_that_come_too_late_did_not_run(two: Hosts, guest: Any) -> None:
    refs = []
    assert guest.add(0) == 0
    for number in range(1, 100):
        refs.append(guest.add.remote(number))
    stop(two, guest)
    late = [guest.add.remote(number) for number in range(100, 110)]
    tell_of_end(two, guest)
    assert [end_of(ref) for ref in refs] == list(range(1, 100))
    assert [end_of(ref) for ref in late] == [False] * 10
    runtime = current_runtime()
    assert eventually(lambda: not runtime.deaths._last_words)


def test_so_it_is_with_several_threads(two: Hosts, guest: Any) -> None:
    assert guest.add(0) == 0
    ends: list[Any] = []

    def call() -> None:
        while True:
            end = end_of(guest.add.remote(-1))
            ends.append(end)
            if end != -1:
                return

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    stop(two, guest)
    tell_of_end(two, guest)
    for thread in threads:
        thread.join(2 * WAIT_S)
    assert not any(thread.is_alive() for thread in threads)
    assert {False} <= set(ends) <= {-1, False, None}


def test_answers_that_come_later_than_the_news_of_the_end_count(
    two: Hosts, proxy: Proxy, guest: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deaths, "_CUT_OFF_S", 1e9)
    assert guest.add(0) == 0
    proxy.hold()
    refs = [guest.add.remote(number) for number in range(1, 10)]
    stream = guest.items(3)
    stop(two, guest)
    late = guest.add.remote(77)
    tell_of_end(two, guest)
    assert not refs[0].done() and not late.done()
    proxy.go_on()
    assert [end_of(ref) for ref in refs] == list(range(1, 10))
    assert list(stream) == [0, 1, 2]
    assert end_of(late) is False


def test_answers_that_were_lost_are_not_waited_for(
    two: Hosts, proxy: Proxy, guest: Any
) -> None:
    """Which calls ran is not known then."""
    assert guest.add(0) == 0
    proxy.hold()
    refs = [guest.add.remote(number) for number in range(1, 10)]
    stop(two, guest)
    refs.append(guest.add.remote(77))
    tell_of_end(two, guest)
    proxy.cut()
    assert [end_of(ref) for ref in refs] == [None] * 10
