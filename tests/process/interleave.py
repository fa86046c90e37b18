# SPDX-License-Identifier: MIT
"""A deterministic scheduler: threads of which one runs at a time, line by line.

Every line of the watched modules is a point where another thread may go on. Which one
does is up to a `choose` function, so that a seed replays a schedule. A thread inside
the C wait counts as asleep until it has been woken, and one that waits for a `Lock`,
or in `until`, until it may go on. If all sleep, the schedule ends in an
`AssertionError` that lists the lines it went through.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import CodeType, FrameType, ModuleType
from typing import Any

READY, ASLEEP, DONE = "ready", "asleep", "done"


class Thread:
    """One thread under the scheduler."""

    def __init__(self, name: str, run: Callable[[], object]) -> None:
        self.name = name
        self.state = READY
        self.error: BaseException | None = None
        self.go = threading.Semaphore(0)
        self.waits_for: Callable[[], bool] | None = None
        self.gives_up = False
        self.run = run
        self.thread = threading.Thread(target=lambda: None, name=name, daemon=True)

    def can_run(self) -> bool:
        return self.state == READY and (self.waits_for is None or self.waits_for())


class Lock:
    """As `threading.RLock`, for the threads of one schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._owner: object = None
        self._depth = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._owner != me:
            self._schedule.until(lambda: self._owner is None)
        self._owner = me
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None


class Schedule:
    """One run of several threads; see the module."""

    def __init__(
        self,
        choose: Callable[[Sequence[Any]], Any],
        watched: Sequence[ModuleType],
        settled: Callable[[], bool],
    ) -> None:
        self._choose = choose
        self._files = {module.__file__ for module in watched}
        self._settled = settled
        self._threads: list[Thread] = []
        self._here = threading.local()
        self._moved = threading.Semaphore(0)
        self._traced: dict[CodeType, bool] = {}
        self.history: list[str] = []

    def add(self, name: str, run: Callable[[], object]) -> Thread:
        thread = Thread(name, run)
        thread.thread = threading.Thread(
            target=self._body, args=(thread,), name=name, daemon=True
        )
        self._threads.append(thread)
        return thread

    # -- inside the threads ------------------------------------------------

    def _body(self, thread: Thread) -> None:
        self._here.thread = thread
        thread.go.acquire()
        sys.settrace(self._trace)
        try:
            thread.run()
        except BaseException as error:
            thread.error = error
        finally:
            sys.settrace(None)
            thread.state = DONE
            self._moved.release()

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line if frame.f_code.co_filename in self._files else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            thread = self._here.thread
            name = frame.f_code.co_name
            self.history.append(f"{thread.name} {name}:{frame.f_lineno}")
            self._pause(thread)
        return self._line

    def _pause(self, thread: Thread) -> None:
        self._moved.release()
        thread.go.acquire()

    def until(self, true: Callable[[], bool], *, gives_up: bool = False) -> None:
        """Let others go on until that holds. `gives_up`: or until none can."""
        thread = self._here.thread
        thread.waits_for, thread.gives_up = true, gives_up
        self._pause(thread)
        thread.waits_for, thread.gives_up = None, False

    def asleep(self, wait: Callable[..., int]) -> Callable[..., int]:
        """`wait`, which may sleep, as a point where others go on."""

        def waiting(*args: Any) -> int:
            thread = getattr(self._here, "thread", None)
            if thread is None:
                return wait(*args)
            thread.state = ASLEEP
            self._moved.release()
            event = wait(*args)
            thread.state = READY
            thread.go.acquire()
            return event

        return waiting

    # -- outside -----------------------------------------------------------

    def run(self, letters: Sequence[Callable[[], None]]) -> None:
        """Run all threads to their ends; `letters` come in between, in their order."""
        for thread in self._threads:
            thread.thread.start()
        rest = list(letters)
        while any(thread.state != DONE for thread in self._threads):
            self._settle()
            ready: list[Any] = [t for t in self._threads if t.can_run()]
            if rest:
                ready.append(rest[0])
            if not ready:
                # One more look: it may have been between waking and saying so.
                self._settle(0.05)
                ready = [t for t in self._threads if t.can_run()]
                if all(t.state == DONE for t in self._threads):
                    break
                ready = ready or [t for t in self._threads if t.gives_up]
                assert ready, "all sleep:\n" + "\n".join(self.history[-60:])
            chosen = self._choose(ready)
            if isinstance(chosen, Thread):
                chosen.go.release()
                self._moved.acquire()
            else:
                rest.pop(0)()
                self.history.append("a letter comes")
        for letter in rest:
            letter()

    def _settle(self, pause: float = 0.0) -> None:
        """Wait until whoever was woken has said so."""
        deadline = time.monotonic() + 60
        quiet = 0
        time.sleep(pause)
        while quiet < 2:
            sleeping = any(t.state == ASLEEP for t in self._threads)
            quiet = quiet + 1 if not sleeping or self._settled() else 0
            if sleeping:
                time.sleep(20e-6)
            assert time.monotonic() < deadline, "a wake-up was not acted on"


def seeded(seed: int) -> Callable[[Any], Any]:
    rng = random.Random(seed)
    favoured = rng.random() < 0.5  # to go on for a while with one, half of the time
    last: list[Any] = [None]

    def choose(ready: Any) -> Any:
        if favoured and last[0] in ready and rng.random() < 0.8:
            return last[0]
        last[0] = rng.choice(ready)
        return last[0]

    return choose
