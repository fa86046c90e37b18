# SPDX-License-Identifier: MIT
"""Whether to spin before sleeping: found out by trying, all the time.

On an idle virtual machine waking a sleeping thread costs up to 25 µs, and a short spin
halves a round trip; where others want the cores, spinning makes it slower. No figure
of the system tells these apart cheaply, but the waits themselves do: most go the way
that was shorter lately, and every now and then a few go the other way.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

M = TypeVar("M")

_SPIN_S = 150e-6
_SPIN_MIN_S = 10e-6
_LONG_YIELD_S = 30e-6
_SHORT_WAIT_S = 1e-3  # longer ones say nothing about waking
_WORST_S = 400e-6  # one preemption must not decide
_TRIAL_EVERY, _TRIAL = 256, 24
_WEIGHT = 1 / 16


class Spinner:
    """Spins, or advises not to. For one thread at a time."""

    def __init__(self) -> None:
        self.wanted = True
        self._longest_s = _SPIN_S
        self._mean_s = {True: 0.0, False: 0.0}  # of a short wait, by way
        self._left = _TRIAL  # waits until the ways are compared
        self._trying = True

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
            if message is not None:
                self._longest_s = min(_SPIN_S, self._longest_s * 2)
                return message
            if done():
                return None
            before, now = now, perf_counter()
            if now - before > _LONG_YIELD_S:
                return None
        self._longest_s = max(_SPIN_MIN_S, self._longest_s / 2)
        return None

    def note(self, waited_s: float) -> None:
        """Learn from one wait that ended with a message."""
        if waited_s > _SHORT_WAIT_S:
            return
        means, way = self._mean_s, self.wanted
        mean = means[way]
        took = min(waited_s, _WORST_S)
        means[way] = mean + (took - mean) * _WEIGHT if mean else took
        self._left -= 1
        if self._left <= 0:
            self._turn()

    def _turn(self) -> None:
        if self._trying and self._mean_s[False]:
            self.wanted = self._mean_s[True] <= self._mean_s[False]
            self._trying, self._left = False, _TRIAL_EVERY
        else:
            self.wanted = not self.wanted
            self._trying, self._left = True, _TRIAL
