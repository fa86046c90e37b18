# SPDX-License-Identifier: MIT
from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from mooactor.process.housekeeper import _IDLE_TICKS, Housekeeper
from tests.conftest import eventually


class House:
    """Something falls due just after the given look at whether anything is."""

    def __init__(self, due_after: int) -> None:
        self.lifeline_fd, self._other = os.pipe()
        self.housekeeper = Housekeeper(self)
        self.due, self._looks, self._due_after = False, 0, due_after

    def read_lifeline(self) -> None: ...

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
