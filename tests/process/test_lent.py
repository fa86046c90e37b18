# SPDX-License-Identifier: MIT
"""Memory that was lent in records which a broken connection took with it."""

from __future__ import annotations

import gc
import os
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.process.current import current_runtime
from tests.conftest import eventually
from tests.process.breaking import failure_of, from_guest, lose, to_guest
from tests.process.guest import Guest
from tests.process.hosts import Hosts

SEED = int(os.environ.get("MOOACTOR_TEST_SEED", "12"))
SIZE = 4 << 20


def data() -> Any:
    return np.ones(SIZE, np.uint8)


def leases() -> int:
    gc.collect()
    return int(current_runtime().statistics()["memory"]["leases"])


def leases_of(guest: Any) -> int:
    return int(asked(guest.statistics)["memory"]["leases"])


def asked(method: Any) -> Any:
    """The result of a call that is made again until no break ends it."""
    while True:
        try:
            return method.options(timeout=20)()
        except moo.ActorUnavailable:
            time.sleep(0.01)


def as_argument(guest: Any) -> Any:
    return guest.total.remote(data())


def as_value(guest: Any) -> Any:
    return guest.total.remote(moo.put(data()))


@pytest.mark.parametrize("send", [as_argument, as_value])
def test_what_a_lost_call_lent_is_taken_back(
    two: Hosts, send: Callable[[Any], Any]
) -> None:
    guest, proxy = to_guest(two)
    assert guest.total(data()) == SIZE
    for _ in range(2):
        call = lose(guest, proxy, lambda: send(guest))
        assert failure_of(call) is not None
        del call
        assert eventually(lambda: leases() == 0)
    assert guest.total(data()) == SIZE


def test_what_a_lost_reply_lent_is_taken_back(two: Hosts) -> None:
    guest, proxy = from_guest(two)
    assert guest.make(SIZE).sum() == SIZE
    before = proxy.came
    proxy.hold()
    ref = guest.make.remote(SIZE)
    assert eventually(lambda: proxy.came > before)
    proxy.cut()
    assert failure_of(ref) is not None
    assert eventually(lambda: leases_of(guest) == 0)
    assert guest.make(SIZE).sum() == SIZE


def test_memory_of_another_process_that_was_lent_on_is_taken_back(two: Hosts) -> None:
    """Its owner grants it to the receiver, and knows nothing of the record."""
    near = two.start("a", Guest)
    guest, proxy = to_guest(two)
    received = near.make(SIZE)
    exports = current_runtime().statistics()["memory"]["exports_copied"]
    assert guest.total(received) == SIZE
    call = lose(guest, proxy, lambda: guest.total.remote(received))
    assert current_runtime().statistics()["memory"]["exports_copied"] == exports
    assert failure_of(call) is not None
    del call
    received = None
    assert eventually(lambda: leases_of(near) == 0)
    assert guest.total(data()) == SIZE


def test_what_a_process_lent_that_cannot_be_reached_is_taken_back(
    two: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was ever sent to it, though it has asked where the data is."""
    monkeypatch.setattr("mooactor.control.ways.BUSY_PATIENCE_S", 0.2)
    guest, proxy = to_guest(two)
    proxy.refusing = True
    with pytest.raises(moo.ActorUnavailable, match="no connection to it"):
        guest.total.remote(data()).get(timeout=20)
    assert eventually(lambda: leases() == 0)
    proxy.refusing = False
    assert asked(guest.all_seen) == []
    assert guest.total(data()) == SIZE


def test_what_has_come_and_waits_for_its_turn_is_not_taken_back(two: Hosts) -> None:
    guest, proxy = from_guest(two)
    assert guest.add(0) == 0
    inbound = current_runtime().inbound
    assert inbound is not None
    _, lane = inbound._results
    lane.taken += 1 << 40  # no room for large results
    ref, made = guest.make.remote(SIZE), []
    reader = threading.Thread(target=lambda: made.append(ref.get(timeout=60)))
    reader.start()
    assert eventually(lambda: len(inbound) == 1)
    proxy.cut()
    assert eventually(lambda: asked(guest.breaks) == 1)
    assert asked(guest.statistics)["memory"]["leases"] == 1
    lane.taken -= 1 << 40
    inbound.busy = True
    current_runtime().poller.wake()
    reader.join(20)
    assert made[0].sum() == SIZE
    assert eventually(lambda: leases_of(guest) == 0)


@pytest.mark.slow
def test_nothing_stays_lent_whenever_connections_break(two: Hosts) -> None:
    """Calls end right, or with the break; and those that come after it end right."""
    rng = random.Random(SEED)
    guest, there = to_guest(two)
    driver = current_runtime().process_id
    assert eventually(lambda: two.agent.members[driver].place)
    back = two.agent.proxy(driver)
    assert guest.total(guest.make(SIZE)) == SIZE
    over, wrong, right = threading.Event(), list[object](), list[int]()
    sizes = (100_000, SIZE, 8 * SIZE)

    def call(rng: random.Random) -> None:
        while not over.is_set():
            size = rng.choice(sizes)
            try:
                if rng.random() < 0.4:
                    total = guest.total(np.ones(size, np.uint8))
                elif rng.random() < 0.5:
                    total = int(guest.make.remote(size).get(timeout=60).sum())
                else:
                    ref = moo.put(np.ones(size, np.uint8))
                    total = guest.total.remote(ref).get(timeout=60)
                (right if total == size else wrong).append(total)
            except moo.ActorUnavailable as error:
                # True: a result that was attached during a break; see `lent`.
                if error.delivered is False:
                    wrong.append(error)
            except BaseException as error:
                wrong.append(error)

    callers = [
        threading.Thread(target=call, args=(random.Random(rng.random()),))
        for _ in range(3)
    ]
    for caller in callers:
        caller.start()
    for _ in range(40):
        time.sleep(rng.random() * 0.15)
        rng.choice((there, back)).cut()
    over.set()
    for caller in callers:
        caller.join(90)
    assert not wrong and right
    assert guest.total(guest.make(SIZE)) == SIZE
    assert eventually(lambda: leases() == leases_of(guest) == 0)
