# SPDX-License-Identifier: MIT
"""Calls that are made again after a death start before those that are made later."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.control.links import Resending
from tests.marks import slow

DATA = np.zeros(100_000)


@moo.actor
class Recorder:
    """Notes the numbers of its calls; they are gone with its process."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def note(self, number: int, data: Any) -> None:
        self.numbers.append(number)

    def noted(self) -> list[int]:
        return self.numbers

    def die(self) -> None:
        os._exit(1)


@pytest.mark.slow
@pytest.mark.parametrize("data", [slow(DATA), 0], ids=["arrays", "small"])
def test_calls_made_meanwhile_start_after_those_that_are_made_again(
    spawn: Any, data: Any
) -> None:
    for _ in range(10):
        handle = spawn(moo.on(Recorder, restart=moo.Restart(max=1000)))
        handle.note(-1, data)
        over = threading.Event()
        sent: list[Any] = []

        def send() -> None:
            """One client's calls, before the death and after it."""
            for number in range(100_000):
                again = handle.note.options(retries=3)
                sent.append(again.remote(number, data))
                if over.is_set():
                    return

        thread = threading.Thread(target=send)
        dies = handle.die.remote()
        thread.start()
        with pytest.raises(moo.ActorRestarted):
            dies.get(60)
        over.set()
        thread.join()
        moo.get(sent, timeout=60)
        numbers = handle.noted()
        assert numbers == sorted(numbers) and len(numbers) > 0
        moo.kill(handle)


def test_new_calls_wait_as_long_as_calls_are_sent_again() -> None:
    class Slow(threading.Event):
        """Over whenever; meanwhile four calls are sent again."""

        def wait(self, timeout: float | None = None) -> bool:
            resending.sent += resending.sent < 4
            waits.append(timeout)
            return False

    resending, waits = Resending(), list[float | None]()
    resending._over = Slow()
    thread = threading.Thread(target=resending.wait)
    thread.start()
    thread.join()
    assert len(waits) == 5  # the last one without progress
