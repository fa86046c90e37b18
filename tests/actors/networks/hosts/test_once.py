# SPDX-License-Identifier: MIT
"""What many processes get crosses the cable once: counted by the kernel.

Within a host the session shares memory.
"""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from tests.actors.networks.hosts.conftest import Place
from tests.actors.networks.peers import AT_MOST_S, PATIENCE_S, SOME, Peer, nothing_left
from tests.conftest import eventually
from tests.networks import Cable

SIZE = 16 * SOME
#: What may come on top of the data: headers of packets, other messages.
OVERHEAD = 1.2


@pytest.fixture(scope="module")
def allowed(transport: str) -> str:
    return f"shm,{transport}"


@pytest.fixture
def far(at: Place) -> list[Any]:
    """Three on the other host, which have all received something."""
    found = [at(Peer, "b") for _ in range(3)]
    for peer in found:
        assert peer.take(np.ones(SOME, np.uint8)) == 1
    return found


def crossed(cable: Cable, before: int) -> float:
    """How often `SIZE` bytes have left this host since."""
    return (cable.sent("a") - before) / SIZE


def test_what_was_put(far: list[Any], cable: Cable) -> None:
    before = cable.sent("a")
    ref = moo.put(np.full(SIZE, 5, np.uint8))
    assert moo.get([peer.take.remote(ref) for peer in far], PATIENCE_S) == [5] * 3
    assert 1 <= crossed(cable, before) < OVERHEAD
    del ref
    assert eventually(nothing_left)


def test_the_arguments_of_a_call_to_a_group(far: list[Any], cable: Cable) -> None:
    before = cable.sent("a")
    calls = moo.Group(far).call(Peer.take, np.full(SIZE, 6, np.uint8))
    assert calls.get(PATIENCE_S) == [6] * 3
    assert 1 <= crossed(cable, before) < OVERHEAD
    assert eventually(nothing_left)


def test_nothing_crosses_between_those_of_one_host(
    far: list[Any], cable: Cable
) -> None:
    before = cable.sent("a"), cable.sent("b")
    assert far[0].hand(far[1], SIZE) == 1
    for host, had in zip("ab", before, strict=True):
        assert cable.sent(host) - had < SOME


def test_a_ref_that_is_passed_on_does_not_come_back(
    far: list[Any], cable: Cable
) -> None:
    before = cable.sent("a"), cable.sent("b")
    busy = far[0].nap.remote(0.5)  # so that it is known in time who else gets it
    assert far[1].take(far[0].make.remote(SIZE, 3)) == 3
    busy.get()
    assert cable.sent("a") - before[0] < SOME
    assert cable.sent("b") - before[1] < OVERHEAD * SIZE  # to its caller
    assert eventually(nothing_left)


@pytest.mark.slow
def test_a_cut_fails_all_that_wait_for_it_and_none_for_ever(
    far: list[Any], cable: Cable
) -> None:
    before = cable.sent("a")
    with cable.slow(160):
        ref = moo.put(np.full(SIZE, 7, np.uint8))
        calls = [peer.take.remote(ref) for peer in far]
        assert eventually(lambda: cable.sent("a") > before + SOME)
        with cable.pulled():
            for call in calls:
                with pytest.raises(moo.ActorUnavailable):
                    call.get(AT_MOST_S)
    assert eventually(partial(_all_get, ref, far), 5)
    del ref, calls
    assert eventually(nothing_left)


def _all_get(ref: Any, far: list[Any]) -> bool:
    try:
        return moo.get([peer.take.remote(ref) for peer in far], 20) == [7] * 3
    except moo.ActorUnavailable:
        return False


@pytest.mark.slow
def test_who_was_to_hand_it_on_and_died_is_replaced(
    far: list[Any], cable: Cable
) -> None:
    pid, before = far[0].pid(), cable.sent("a")
    with cable.slow(160):
        ref = moo.put(np.full(SIZE, 8, np.uint8))
        calls = [peer.take.remote(ref) for peer in far]
        assert eventually(lambda: cable.sent("a") > before + SOME)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(moo.ActorDied):
            calls[0].get(PATIENCE_S)
        assert moo.get(calls[1:], PATIENCE_S) == [8, 8]
    assert crossed(cable, before) < 2 * OVERHEAD
    del ref, calls
    assert eventually(nothing_left)
