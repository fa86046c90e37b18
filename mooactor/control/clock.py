# SPDX-License-Identifier: MIT
"""Time: one clock, the timers over it, and a clock that a test advances.

Code that waits, retries or gives up takes a `Clock`, and reads no other. In a program
that is `REAL`, the machine's monotonic clock: all processes of a host read the same,
and so do `time.monotonic` and `time.perf_counter`, which Linux takes from one source.
In a test it is a `VirtualClock`, and minutes of silence pass at once.

How long a system call waits stays real: sockets know no other time.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Action = Callable[[], Any]


class Clock:
    """``now()``: seconds since some moment, which never go back."""

    now: Callable[[], float] = staticmethod(time.monotonic)

    def timers(self) -> Timers:
        """New ones over this clock. The caller runs them."""
        return Timers(self)


class Timer:
    """An action that is to be done at some time."""

    __slots__ = ("action",)

    def __init__(self, action: Action) -> None:
        self.action: Action | None = action

    def cancel(self) -> None:
        """Do not do it. Does nothing if it was done, or is being done."""
        self.action = None


class Timers:
    """Actions by the time at which they fall due; those of one time in the order of
    their coming.

    Threads: any may call `at`, `after` and `Timer.cancel`, and so may signal handlers.
    One calls `due` and `run_due`. It is not woken by an addition.
    """

    def __init__(self, clock: Clock) -> None:
        self._now = clock.now
        # No two entries are compared beyond their numbers, so one push or pop is one
        # step for other threads.
        self._heap: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, when: float, action: Action) -> Timer:
        """Do it at that time of the clock."""
        timer = Timer(action)
        heappush(self._heap, (when, next(self._numbers), timer))
        return timer

    def after(self, seconds: float, action: Action) -> Timer:
        """Do it in so much time."""
        return self.at(self._now() + seconds, action)

    def due(self) -> float | None:
        """When `run_due` is needed; None: there is nothing to do."""
        while self._heap and self._heap[0][2].action is None:
            entry = heappop(self._heap)
            if entry[2].action is not None:  # an earlier one came meanwhile
                heappush(self._heap, entry)
        return self._heap[0][0] if self._heap else None

    def run_due(self) -> None:
        """Do what is due now, in order. An action that is added for a later time, be it
        over by then, waits for the next call. An exception of an action passes through,
        and costs the others nothing."""
        now = self._now()
        while self._heap and self._heap[0][0] <= now:
            timer = heappop(self._heap)[2]
            action, timer.action = timer.action, None
            if action is not None:
                action()


class VirtualClock(Clock):
    """A clock that stands still until a test advances it; see `mooactor.testing`."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now
        self._driven: list[tuple[Callable[[], float | None], Action]] = []

    def now(self) -> float:
        return self._now

    def timers(self) -> Timers:
        """New ones, which `advance` runs."""
        made = Timers(self)
        self.drive(made.due, made.run_due)
        return made

    def drive(self, due: Callable[[], float | None], run: Action) -> None:
        """Have `advance` call `run` at the time that `due` gives, as often as it gives
        one: ``clock.drive(node.due, node.serve)``."""
        self._driven.append((due, run))

    def advance(self, seconds: float) -> None:
        """Let so much time pass. All that falls due is done at its time and in its
        order, what is added meanwhile included."""
        end = self._now + seconds
        while True:
            known = [(due(), run) for due, run in self._driven]
            waiting = [(when, run) for when, run in known if when is not None]
            when, run = min(waiting, key=lambda entry: entry[0], default=(end, None))
            if run is None or when > end:
                break
            self._now = max(self._now, when)
            run()
        self._now = end


REAL = Clock()
