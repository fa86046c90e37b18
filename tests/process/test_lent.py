# SPDX-License-Identifier: MIT
"""Memory that was lent in records which a broken connection took with it."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.process.current import current_runtime
from mooactor.process.objects import payloads
from tests.conftest import eventually
from tests.process.breaking import failure_of, from_guest, lose, to_guest
from tests.process.guest import Guest
from tests.process.hosts import Hosts

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
            pass


def test_what_a_lost_call_lent_is_taken_back(
    two: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An argument, a stored value, and memory of another process that was lent on: its
    owner grants it to the receiver, and knows nothing of the record."""
    monkeypatch.setattr(payloads, "CLAIMED_S", 0.3)
    near = two.start("a", Guest)
    guest, proxy = to_guest(two)
    received = near.make(SIZE)
    assert guest.total(received) == SIZE
    exports = current_runtime().statistics()["memory"]["exports_copied"]
    call = lose(guest, proxy, lambda: guest.total.remote(received))
    assert current_runtime().statistics()["memory"]["exports_copied"] == exports
    assert failure_of(call) is not None
    del call
    received = None
    assert eventually(lambda: leases_of(near) == 0)
    for make in (data, lambda: moo.put(data())):
        call = lose(guest, proxy, lambda make=make: guest.total.remote(make()))  # type: ignore[misc]
        assert failure_of(call) is not None
        del call
        assert eventually(lambda: leases() == 0)
    assert guest.total(data()) == SIZE


def test_what_a_lost_reply_lent_is_taken_back(two: Hosts) -> None:
    guest, proxy = from_guest(two)
    guest.claims_after(0.3)
    assert guest.make(SIZE).sum() == SIZE
    before = proxy.came
    proxy.hold()
    ref = guest.make.remote(SIZE)
    assert eventually(lambda: proxy.came > before)
    proxy.cut()
    assert failure_of(ref) is not None
    assert eventually(lambda: leases_of(guest) == 0)
    assert guest.make(SIZE).sum() == SIZE


def test_what_a_process_lent_that_cannot_be_reached_is_taken_back(
    two: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was ever sent to it, though it has asked where the data is."""
    monkeypatch.setattr("mooactor.control.ways.BUSY_PATIENCE_S", 0.2)
    guest, proxy = to_guest(two)
    proxy.refusing = True
    with pytest.raises(moo.ActorUnavailable, match="no connection to it") as caught:
        guest.total.remote(data()).get(timeout=20)
    assert caught.value.delivered is False
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
