# SPDX-License-Identifier: MIT
"""Whether to spin before sleeping: found out by trying, all the time.

On an idle virtual machine waking a sleeping thread costs up to 25 µs, and a short spin
halves a round trip; where others want the cores, spinning makes it slower. No figure
of the system tells these apart cheaply, but the waits themselves do: every now and then
some go the other way, and the better way is kept until the next time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import TypeVar

M = TypeVar("M")

_SPIN_S = 150e-6
_SPIN_MIN_S = 10e-6
_LONG_YIELD_S = 30e-6
_SHORT_WAIT_S = 1e-3  # longer ones say nothing about waking
_SAMPLE = 16  # waits each way that are compared, by their medians
_EVERY = 256  # waits between two comparisons


class Spinner:
    """Spins, or advises not to. For one thread at a time."""

    def __init__(self) -> None:
        self.wanted = True
        self._longest_s = _SPIN_S
        self._waits: list[float] = []  # those of this way, lately
        self._rival: list[float] = []  # those of the other way, just before
        self._until_sample = _SAMPLE  # the first waits of a process are like no other

    def spin(
        self, receive: Callable[[], M | None], done: Callable[[], object]
    ) -> M | None:
        """Look for a message for a short while, and return it.

        The core is yielded at each turn: to libzmq's own thread, which needs it, and
        to anybody else who works; a yield that takes long ends the spin.
        """
        now = perf_counter()
        end = now + self._longest_s
        while now < end:
            os.sched_yield()
            message = receive()
            if message is not None or done():
                return message
            before, now = now, perf_counter()
            if now - before > _LONG_YIELD_S:
                return None
        return None

    def note(self, waited_s: float) -> None:
        """Learn from one wait that ended with a message.

        It is counted from the send before it: where threads share a core, what
        spinning costs shows there, when the sender is pushed aside.
        """
        if waited_s > _SHORT_WAIT_S:
            self._longest_s = max(_SPIN_MIN_S, self._longest_s / 2)
            return
        self._longest_s = _SPIN_S
        if self._until_sample > 0:
            self._until_sample -= 1
            return
        self._waits.append(waited_s)
        if len(self._waits) >= _SAMPLE:
            self._sampled()

    def _sampled(self) -> None:
        """One way has its sample: go the other way for one, then decide."""
        if not self._rival:
            self._rival, self._waits = self._waits, []
            self.wanted = not self.wanted
            return
        spun, slept = self._waits, self._rival
        if not self.wanted:
            spun, slept = slept, spun
        self.wanted = median(spun) < median(slept)
        self._rival, self._waits = [], []
        self._until_sample = _EVERY
