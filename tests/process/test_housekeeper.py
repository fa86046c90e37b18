# SPDX-License-Identifier: MIT
"""The housekeeper's thread wakes up for what falls due while it sleeps."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from time import perf_counter
from types import SimpleNamespace

import pytest

from mooactor.process.housekeeper import _IDLE_TICKS, Housekeeper
from tests.conftest import eventually


class House:
    """Something falls due just after the given look at whether anything is."""

    def __init__(self, due_after: int) -> None:
        self.lifeline_fd, self._other = os.pipe()
        self.housekeeper = Housekeeper(self)
        self.due, self._looks, self._due_after = False, 0, due_after

    agent = SimpleNamespace(read=lambda: None)

    def flush(self) -> None: ...

    def look(self) -> bool:
        was_due, self.due = self.due, False
        return was_due

    def is_idle(self) -> bool:
        idle = not self.due
        self._looks += 1
        if self._looks == self._due_after:
            self.due = True
            self.housekeeper.arm()
        return idle

    def has_looked(self) -> bool:
        return self._looks >= self._due_after and not self.due

    def close(self) -> None:
        self.housekeeper.close()
        os.close(self.lifeline_fd)
        os.close(self._other)


# The look after _IDLE_TICKS others is the one before it goes to sleep.
@pytest.fixture(params=range(_IDLE_TICKS, _IDLE_TICKS + 3))
def house(request: pytest.FixtureRequest) -> Iterator[House]:
    house = House(due_after=request.param)
    yield house
    house.close()


def test_what_falls_due_while_it_goes_to_sleep_is_looked_at(house: House) -> None:
    house.housekeeper.start()
    house.housekeeper.arm()
    assert eventually(house.has_looked)


def test_it_is_woken_again_when_a_signal_handler_kept_it_from_being_woken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house = House(0)
    keeper, ready = house.housekeeper, house.housekeeper._ready
    keeper.start()
    try:
        assert eventually(lambda: keeper._wakes_at == float("inf"))
        house.due = True
        with monkeypatch.context() as patch:
            patch.setattr(ready, "wake", lambda: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                keeper.arm()
        keeper.arm()
        assert eventually(lambda: not house.due)
    finally:
        house.close()


def test_an_action_that_is_due_sooner_than_others_wakes_it() -> None:
    house, acted = House(0), threading.Event()
    keeper = house.housekeeper
    keeper.start()
    try:
        assert eventually(lambda: keeper._wakes_at == float("inf"))
        keeper.at(perf_counter() + 3600.0, lambda: None)
        assert eventually(lambda: 0.0 < keeper._wakes_at < float("inf"))
        keeper.at(perf_counter() + 0.01, acted.set)
        assert acted.wait(60)
    finally:
        house.close()


def test_an_action_that_fails_does_not_end_its_thread(
    capfd: pytest.CaptureFixture[str],
) -> None:
    house, acted = House(0), threading.Event()
    house.housekeeper.start()
    try:
        house.housekeeper.at(0.0, lambda: print(1 / 0))
        house.housekeeper.at(0.0, acted.set)
        assert acted.wait(60)
    finally:
        house.close()
    assert "the housekeeper failed" in capfd.readouterr().err
