# SPDX-License-Identifier: MIT
"""A process of a third host gives a value to this one, and dies amid the data."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import mooactor as moo
from mooactor.process.current import current_runtime
from tests.conftest import eventually
from tests.process.guest import Guest
from tests.process.hosts import Hosts, hosts

SIZE = 256 << 20


@pytest.fixture
def four() -> Iterator[Hosts]:
    with hosts("a", "b", "c", "d") as made:
        yield made


class Reading(threading.Thread):
    """Reads a Ref here."""

    def __init__(self, ref: Any) -> None:
        super().__init__()
        self._ref = ref
        self.result: int | moo.MooError | None = None
        self.start()

    def run(self) -> None:
        try:
            self.result = int(self._ref.get(timeout=60).sum())
        except moo.MooError as error:
            self.result = error


def read_from_a_holder_that_stops(four: Hosts, owner: Any, *others: Any) -> Reading:
    """Two hosts take it from its owner, the next from the first of them: the holder. It
    has a part of the data left to send. The connection for that stands: one that is
    still being made is given up after four seconds."""
    (other,) = others[0].put(SIZE >> 8)
    assert other.get(timeout=60).sum() == SIZE >> 8
    for _ in range(20):
        (ref,) = owner.put(SIZE)
        for other in others:
            assert other.look_in([ref]) == SIZE
        reading = Reading(ref)
        assert eventually(lambda: arriving() or not reading.is_alive())
        four.kill(others[0], signal.SIGSTOP)
        if not eventually(lambda: not arriving(), 0.5):
            return reading
        four.kill(others[0], signal.SIGCONT)  # it was quicker
        reading.join()
    raise AssertionError("the holder was always quicker")


def arriving() -> int:
    return int(current_runtime().statistics()["arriving"])


@pytest.mark.parametrize("comes_again", [False, True])
def test_the_value_comes_from_its_owner(four: Hosts, comes_again: bool) -> None:
    """Perhaps it has come from there already: its owner's connection with the holder
    broke. That copy waits for the end of the first."""
    owner, holder, third = (four.start(host, Guest) for host in "bcd")
    for guest in (owner, third):
        assert guest.add(0) == 0
    assert eventually(lambda: four.agent.members[holder._actor_id].place)
    proxy = four.agent.proxy(holder._actor_id)
    reading = read_from_a_holder_that_stops(four, owner, holder, third)
    if comes_again:
        assert proxy.cut()
        assert eventually(lambda: current_runtime().values._again)
        assert arriving()
    four.kill(holder)
    four.agent.tell_of_death(holder._actor_id)
    reading.join(60)
    assert reading.result == SIZE
    assert eventually(lambda: current_runtime().statistics()["values_pending"] == 0)
    assert not current_runtime().values._again
