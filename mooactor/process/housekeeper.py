# SPDX-License-Identifier: MIT
"""The thread for events that no other thread waits for.

It alone reads the lifeline: news of a death reach waiting threads independently of
other threads, and no signal handler can cut their handling short, because those run in
the main thread. It ends calls whose deadline has passed, and runs delayed actions.
While replies or queued records are due and perhaps nobody waits for them, it looks
every few milliseconds. In a session of several hosts it looks after the connections to
the others, too. It runs no code of the user's: `Callbacks` does.
"""

from __future__ import annotations

import math
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from mooactor.control.clock import REAL, Clock
from mooactor.control.readiness import Readiness
from mooactor.process.objects.future import Future

_TICK_S = 0.004
_LONGEST_S = 3600.0  # epoll_wait(2) takes no more than 2**31 ms
_IDLE_TICKS = 25


class Household(Protocol):
    """The runtime, as the housekeeper sees it."""

    lifeline_fd: int
    agent: Any

    def flush(self) -> None: ...
    def look(self) -> bool: ...
    def is_idle(self) -> bool: ...


class Housekeeper:
    """One thread per runtime."""

    def __init__(self, household: Household, clock: Clock = REAL) -> None:
        self._household = household
        self.clock = clock
        self._ready = Readiness()
        # Both before `start`, or in the thread.
        self.watch = self._ready.watch
        self.unwatch = self._ready.unwatch
        self._armed = False
        self._ticks = False  # it will look by itself, within `_TICK_S`
        self._looking = False
        self._closed = False
        self._timers = clock.timers()
        self._wakes_at = 0.0  # until when it sleeps, at most; 0: it is awake
        self._thread = threading.Thread(
            target=self._run, name="mooactor-housekeeper", daemon=True
        )

    def start(self, *, looking: bool = True) -> None:
        """Start the thread: all handlers of the lifeline's news are ready. `looking`:
        those of calls are, too; otherwise `look_from_now_on` says so later."""
        self._looking = looking
        self._thread.start()

    def look_from_now_on(self) -> None:
        """See `start`."""
        self._looking = True
        if self._armed:
            self._ready.wake()

    def arm(self) -> None:
        """Look for due events that perhaps nobody waits for. Never blocks; finalizers
        may call it. If a signal handler raises here, the next call wakes the thread."""
        self._armed = True
        if not self._ticks:
            self._ready.wake()

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Call `action` at that time of the clock, in the housekeeper's thread. It must
        be quick."""
        self._timers.at(when, action)
        if when < self._wakes_at:
            self._ready.wake()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """As `at`, in so much time."""
        self.at(self.clock.now() + seconds, action)

    def _run(self) -> None:
        self.watch(self._household.lifeline_fd, self._household.agent.read)
        idle_ticks = 0
        while not self._closed:
            self._ready.wait(self._sleep_s())
            self._wakes_at = 0.0
            if self._closed:
                return
            try:
                self._ready.run()
                self._timers.run_due()
                if self._armed and self._looking:
                    idle_ticks = self._tick(idle_ticks)
            except Exception:
                # The thread must live on: others' deadlines depend on it.
                print("mooactor: the housekeeper failed:", file=sys.stderr)
                traceback.print_exc()

    def _sleep_s(self) -> float | None:
        # These are set before the timers and `_armed` are looked at: later additions
        # see them, and wake.
        self._wakes_at, self._ticks = float("inf"), False
        if self._armed and self._looking:
            self._ticks = True
            return _TICK_S
        due = self._timers.due()
        if due is None:
            return None
        self._wakes_at = due
        return min(max(0.0, due - self.clock.now()), _LONGEST_S)

    def _tick(self, idle_ticks: int) -> int:
        self._household.flush()
        if self._household.look() or not self._household.is_idle():
            return 0
        if idle_ticks < _IDLE_TICKS:
            return idle_ticks + 1
        # Disarmed before the last look: what is due from here on arms it anew, and what
        # was due before, when `arm` did nothing, is seen.
        self._armed = False
        if not self._household.is_idle():
            self._armed = True
        return 0

    def close(self) -> None:
        """End the thread; delayed actions are dropped."""
        self._closed = True
        self._ready.wake()
        if self._thread.ident and self._thread is not threading.current_thread():
            self._thread.join(2.0)
        self._ready.close()


_AGAIN_S = 0.1


class Deadlines:
    """Ends each call of this process at its deadline, also if nobody waits for it.

    Invariant: while `_next` is in the future, `_expire` is due then, or before. A
    signal handler may come between any two lines, and raise, or wait for a call with a
    deadline of its own.
    """

    def __init__(
        self,
        pending: dict[int, Future],
        housekeeper: Housekeeper,
        clock: Clock = REAL,
    ) -> None:
        """`pending`: the calls that have not ended, by id."""
        self._pending = pending
        self._now = clock.now
        self._housekeeper = housekeeper
        self._next = math.inf

    def limit(self, future: Future, deadline: float) -> None:
        """End a pending call at `deadline`, a time of the clock."""
        future.deadline = deadline
        if deadline < self._next or self._next < self._now():
            self._housekeeper.at(deadline, self._expire)
            self._next = deadline

    def _expire(self) -> None:
        """End calls past their deadline; come again for the next one."""
        self._next = math.inf  # before the calls are looked at: later ones see it
        following = self._now() + _AGAIN_S  # if one of them cannot be told
        try:
            following = self._end_overdue()
        finally:
            if following < self._next:
                self._housekeeper.at(following, self._expire)
                self._next = following

    def _end_overdue(self) -> float:
        """End calls past their deadline, also if a signal handler cut short that
        somebody else did; the earliest deadline of the others."""
        now, following = self._now(), math.inf
        for future in list(self._pending.values()):
            if future.deadline is None or future.is_over():
                continue
            if future.deadline <= now:
                future.expire()
            else:
                following = min(following, future.deadline)
        return following


_IDLE_S = 0.1


class Callbacks:
    """The thread that runs users' done-callbacks of Refs; one per runtime. It starts
    when a callback is due, and ends soon after the last.

    They may do anything there, also wait for calls. A callback is queued once, even if
    requested several times; its exceptions are printed.
    """

    def __init__(self) -> None:
        self._queue: deque[Callable[[], object]] = deque()
        self._work = threading.Semaphore(0)
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, once: Iterator[Callable[[], object]]) -> None:
        """Queue the contents of `once`, which is then empty."""
        self._queue.extend(once)
        with self._lock:
            if self._queue and self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="mooactor-callbacks", daemon=True
                )
                self._thread.start()
        self._work.release()

    def _run(self) -> None:
        while True:
            due = self._work.acquire(timeout=_IDLE_S)
            while self._queue:
                try:
                    self._queue.popleft()()
                except Exception:
                    traceback.print_exc()
            with self._lock:
                if not self._queue and (self._closed or not due):
                    self._thread = None
                    return

    def close(self) -> None:
        """Wait for those that run, for a while."""
        self._closed = True
        thread = self._thread
        self._work.release()
        if thread is not None and thread is not threading.current_thread():
            thread.join(2.0)
