# SPDX-License-Identifier: MIT
"""Who reads the inbox: the thread that waits, and nobody else while it does.

Threads that wait elect a *leader*: it polls the inbox and dispatches what comes, for
all. The others sleep until their own outcome is done or the leader leaves. So a reply
reaches the thread that waits for it without a hand-over between threads.

The leader may spin before it sleeps, where that makes waits shorter; see `spinning`.

When nobody waits, but replies, callbacks or queued records are due, a helper thread
looks every few milliseconds. An asyncio loop takes part by watching the descriptors.

Data from other hosts (see `arrivals`) is looked after in the same way as the inbox.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from time import perf_counter
from typing import Protocol

from mooactor.control.messenger import Messenger
from mooactor.process.arrivals import Arrivals
from mooactor.process.outcome import Waiter
from mooactor.process.spinning import Spinner

_TICK_MS = 4
_JUST_NOW_S = 100e-6
_WAITED_S = 10e-6
_IDLE_TICKS = 25
_FOREVER_MS = 3_600_000


class Dispatcher(Protocol):
    """What the pump feeds."""

    lifeline_fd: int

    def dispatch(self, message: bytes) -> None: ...
    def read_lifeline(self) -> None: ...
    def flush(self) -> None: ...
    def is_idle(self) -> bool: ...


class Pump:
    """Moves messages from the inbox to the dispatcher, in some waiting thread."""

    def __init__(
        self,
        messenger: Messenger,
        dispatcher: Dispatcher,
        arrivals: Arrivals | None = None,
    ) -> None:
        """`arrivals`: None in a process that has nothing to do with other hosts."""
        self._messenger = messenger
        self._dispatcher = dispatcher
        self._arrivals = arrivals
        self._lead_lock = threading.Lock()
        self._followers: list[Waiter] = []
        self._wake_r, self._wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        fds = [dispatcher.lifeline_fd]
        if arrivals is not None:
            fds.append(arrivals.readable_fd)
        self._watched = messenger.watch(self._wake_r, *fds)
        self._loop_fds = [messenger.inbox_fd, *fds[1:]]
        self._asleep = False  # the leader is, or is about to be, in poll
        self._leader_thread = 0
        self._spinner = Spinner()
        self.sent_at = 0.0  # perf_counter before the last send that is waited for
        self.lone = False  # the last wait lasted: what ended it is likely all there is
        self._helper: threading.Thread | None = None
        self._armed = False
        self._arm_r, self._arm_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._loops: dict[asyncio.AbstractEventLoop, None] = {}
        self._closed = False

    # -- waiting threads ---------------------------------------------------

    def wait(
        self,
        done: Callable[[], object],
        deadline: float | None = None,
        waiter: Waiter | None = None,
    ) -> bool:
        """Block until `done()`; False if `deadline` (perf_counter) passed first.

        `waiter` is woken by whatever makes `done()` true; without one, a thread
        that does not lead looks again every few milliseconds.
        """
        while not done():
            if self._closed:
                return bool(done())
            if self._lead_lock.acquire(False):
                try:
                    in_time = self._lead(done, deadline)
                finally:
                    self._lead_lock.release()
                    self._hand_over()
            else:
                in_time = self._follow(done, deadline, waiter)
            if not in_time:
                return bool(done())
        return True

    def _lead(self, done: Callable[[], object], deadline: float | None) -> bool:
        # One poll and one receive where a reply comes alone: each further look at
        # the socket costs a microsecond. What is left behind, the next one reads.
        self._leader_thread = threading.get_ident()
        receive, dispatch = self._messenger.receive, self._dispatcher.dispatch
        spinner = self._spinner
        if self._arrivals is not None and self._arrivals.busy:
            self._arrivals.look()
        began = start = perf_counter()
        if began - self.sent_at < _JUST_NOW_S:
            start = self.sent_at
        try:
            while not self._closed:
                message = spinner.spin(receive, done) if spinner.wanted else None
                if message is None:
                    timeout_ms = _FOREVER_MS
                    if deadline is not None:
                        left = deadline - perf_counter()
                        if left <= 0:
                            return bool(done())
                        timeout_ms = int(left * 1000) + 1
                    message = self._sleep(done, timeout_ms)
                    if message is None:
                        if done():
                            return True
                        continue
                if start:
                    now = perf_counter()
                    spinner.note(now - start)
                    self.lone = now - began > _WAITED_S
                    start = 0.0
                while message is not None:
                    dispatch(message)
                    if done():
                        return True
                    message = receive()
            return True
        finally:
            self._leader_thread = 0

    def _sleep(self, done: Callable[[], object], timeout_ms: int) -> bytes | None:
        """Sleep until something is there; return it if it is a message."""
        arrivals = self._arrivals
        if arrivals is not None and arrivals.restless:
            timeout_ms = min(timeout_ms, _TICK_MS)
        self._asleep = True
        # Checked after the flag is up: whoever completes something from here on
        # sees it and writes to the pipe.
        if done():
            self._asleep = False
            return None
        try:
            ready = self._messenger.wait(self._watched, timeout_ms)
        finally:
            self._asleep = False
        if ready.other:
            self._clear(self._wake_r)
            self._dispatcher.read_lifeline()
        if arrivals is not None and arrivals.busy:
            arrivals.look()
        return self._messenger.take() if ready.inbox else None

    def _follow(
        self,
        done: Callable[[], object],
        deadline: float | None,
        waiter: Waiter | None,
    ) -> bool:
        timeout = _TICK_MS / 1000 if waiter is None else -1.0
        if deadline is not None:
            left = deadline - perf_counter()
            if left <= 0:
                return False
            timeout = left if timeout < 0 else min(timeout, left)
        waiter = waiter or Waiter()
        self._followers.append(waiter)
        try:
            # The leader may have left just before the append: then lead instead.
            if self._lead_lock.locked() and not done():
                waiter.lock.acquire(True, timeout)
        finally:
            try:
                self._followers.remove(waiter)
            except ValueError:
                pass
        return True

    def _hand_over(self) -> None:
        if self._followers:
            try:
                self._followers[0].wake()
            except IndexError:
                pass
        if self._loops:
            for loop in list(self._loops):
                self._call_soon(loop, self._on_readable)

    @property
    def led(self) -> bool:
        """Whether some thread leads just now."""
        return self._lead_lock.locked()

    @property
    def leads_here(self) -> bool:
        """Whether this thread leads."""
        return self._leader_thread == threading.get_ident()

    def wake(self) -> None:
        """Make a sleeping leader look again. Call after completing something from a
        thread that may not be the leader."""
        if self._asleep and self._leader_thread != threading.get_ident():
            self._write(self._wake_w)

    def drain(self) -> bool:
        """Dispatch all that is there, without waiting. Leader only."""
        receive, dispatch = self._messenger.receive, self._dispatcher.dispatch
        some = False
        while (message := receive()) is not None:
            dispatch(message)
            some = True
        if self._arrivals is not None and self._arrivals.busy:
            some |= self._arrivals.look()
        return some

    def try_drain(self) -> bool:
        """As `drain`, unless another thread leads: then it does."""
        if not self._lead_lock.acquire(False):
            return False
        try:
            return self.drain()
        finally:
            self._lead_lock.release()

    # -- the helper thread -------------------------------------------------

    def start_helper(self) -> None:
        """Start the helper thread; the lifeline is then read at any time."""
        if self._helper is None:
            self._helper = threading.Thread(
                target=self._help, name="mooactor-pump", daemon=True
            )
            self._helper.start()

    def arm(self) -> None:
        """Something is due though nobody may wait for it: have the helper look."""
        if self._armed:
            return
        self._armed = True
        if self._helper is None:
            self.start_helper()
        else:
            self._write(self._arm_w)

    def arm_if_helped(self) -> None:
        """As `arm`, but never start a thread: finalizers must not."""
        if self._helper is not None:
            self.arm()

    def _help(self) -> None:
        import select

        poller = select.poll()
        poller.register(self._arm_r, select.POLLIN)
        poller.register(self._dispatcher.lifeline_fd, select.POLLIN)
        idle_ticks = 0
        while not self._closed:
            events = poller.poll(_TICK_MS if self._armed else None)
            if self._closed:
                return
            if events:
                self._clear(self._arm_r)
                self._dispatcher.read_lifeline()
            if not self._armed:
                continue
            self._dispatcher.flush()
            busy = self.try_drain() or not self._dispatcher.is_idle()
            idle_ticks = 0 if busy else idle_ticks + 1
            if idle_ticks > _IDLE_TICKS:
                idle_ticks, self._armed = 0, False

    # -- asyncio -----------------------------------------------------------

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let `loop` read the inbox whenever no thread leads. In the loop's thread."""
        if loop in self._loops:
            return
        for old in [known for known in self._loops if known.is_closed()]:
            del self._loops[old]
        self._loops[loop] = None
        for fd in self._loop_fds:
            loop.add_reader(fd, self._on_readable)
        loop.add_reader(self._dispatcher.lifeline_fd, self._dispatcher.read_lifeline)
        loop.call_soon(self._on_readable)

    def _on_readable(self) -> None:
        # The descriptor is edge-triggered: drain to the end, or not at all; a thread
        # that leads meanwhile calls us again when it leaves.
        self.try_drain()

    @staticmethod
    def _call_soon(
        loop: asyncio.AbstractEventLoop, callback: Callable[[], object]
    ) -> None:
        try:
            loop.call_soon_threadsafe(callback)
        except RuntimeError:
            pass  # the loop is closed

    def arrival(self) -> tuple[asyncio.Event, Callable[[], None]]:
        """An event of the running loop, and how to set it from any thread; from here
        on the loop reads the inbox."""
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        thread = threading.get_ident()

        def arrived() -> None:
            if threading.get_ident() == thread:
                event.set()
            else:
                self._call_soon(loop, event.set)

        self.attach(loop)
        return event, arrived

    # -- the end -----------------------------------------------------------

    def close(self) -> None:
        """Release every waiting thread and end the helper."""
        self._closed = True
        self._write(self._wake_w)
        self._write(self._arm_w)
        for waiter in list(self._followers):
            waiter.wake()
        for loop in list(self._loops):
            if not loop.is_closed() and not loop.is_running():
                for fd in self._loop_fds:
                    loop.remove_reader(fd)
                loop.remove_reader(self._dispatcher.lifeline_fd)
        if self._helper and self._helper is not threading.current_thread():
            self._helper.join(2.0)
        with self._lead_lock:
            self._arrivals = None
            for fd in (self._wake_r, self._wake_w, self._arm_r, self._arm_w):
                os.close(fd)

    @staticmethod
    def _write(fd: int) -> None:
        try:
            os.write(fd, b"\0")
        except (BlockingIOError, OSError):
            pass  # full means that it wakes anyway

    @staticmethod
    def _clear(fd: int) -> None:
        try:
            os.read(fd, 4096)
        except BlockingIOError:
            pass
