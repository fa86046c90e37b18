# SPDX-License-Identifier: MIT
"""The poller: threads that wait read the inbox, one of them at a time for all.

This is Leader/Followers (Schmidt et al., 2000). Of the threads that wait, one is the
*leader*: it polls the inbox and dispatches what comes. The *followers* sleep until what
they wait for is done, or until the lead is free. So a reply reaches the thread that
waits for it without a hand-over between threads. The election, the sleeping and the
queue of messages are in C: see ``cext/mail/inbox.c``.

A signal handler or a finalizer may run between any two lines here. The handler may
raise. Both may wait for a call of their own, in this thread, and so enter the poller
again. The following holds all the same:

1. **If a thread waits, one leads**, or has been woken to lead. A wait has a *turn*,
   whose destructor gives up the lead, so the lead is free after every end of the wait.
   A leader that stays away is overtaken. A turn is used again only after a wait that
   ended in its own time.
2. **No wake-up is lost.** A thread checks its own result after each message that it
   dispatched, and after each that another thread or an inner wait dispatched
   (by `moo_turn_handled`). A follower also looks when a future that it named is done;
   one that named none looks every few milliseconds. Code that completes something
   outside of `Dispatcher.dispatch` must call `Poller.wake` afterwards, for the leader.
3. **Every message is dispatched at least once.** It stays in the queue from its receipt
   until its dispatch has returned. If dispatching is cut short, the next leader
   dispatches the message again; `dispatch` says why that does no harm.
4. **Messages are dispatched in the order received**, one at a time. The exceptions are
   the second dispatch of a message (3), and a leader that lost the lead: it was
   overtaken (1), or waited again (5).
5. **The leader may wait again**, at any line. The inner wait leads then, and the outer
   one goes on when it returns, perhaps beside a thread that leads by then.
6. **No lock is held while Python code runs.** Done-callbacks of the user's run in a
   thread of their own, see `Callbacks`.

While nobody waits, the thread of the `Housekeeper` looks every few milliseconds as long
as replies or queued records are due. An asyncio loop takes part by watching the
descriptors, and reads the inbox whenever no thread leads. Transfers from other hosts
(see `objects.inbound`) are looked after by the leader, like the inbox.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from mooactor.control.messenger import Messenger, ffi, lib
from mooactor.process.loops import LoopReaders
from mooactor.process.objects.future import Future
from mooactor.process.objects.inbound import InboundTransfers

if TYPE_CHECKING:
    import asyncio

    from mooactor.process.loops import Loop

_TICK_US = 4000
_FOREVER_US = 3_600_000_000

if lib is not None:
    _MAIL, _OTHER, _BOTH = lib.MOO_MAIL, lib.MOO_OTHER, lib.MOO_MAIL_AND_OTHER
    _LOOK, _LED, _LATE, _SHUT = lib.MOO_LOOK, lib.MOO_LED, lib.MOO_LATE, lib.MOO_SHUT
    _wait, _handled, _leave = (
        lib.moo_turn_wait,
        lib.moo_turn_handled,
        lib.moo_turn_leave,
    )
    _wake_turn = lib.moo_turn_wake
    _new, _gc, _unpack = ffi.new, ffi.gc, ffi.unpack
    _TURN = ffi.typeof("moo_turn *")


class Dispatcher(Protocol):
    """The receiver of messages."""

    def dispatch(self, serial: int, message: bytes) -> None: ...
    def dispatched(self, serial: int) -> None: ...


class Poller:
    """Moves messages from the inbox to the dispatcher, in some waiting thread."""

    def __init__(
        self,
        messenger: Messenger,
        dispatcher: Dispatcher,
        inbound: InboundTransfers | None = None,
    ) -> None:
        """`inbound`: None in a process without contact to other hosts."""
        self._inbox = messenger.inbox
        self._dispatcher = dispatcher
        self._turns: list[Any] = []  # that were left, and may be used again
        self._inbound = inbound
        self._loop_fds = [messenger.inbox_fd, lib.moo_inbox_loops(self._inbox, 0)]
        if inbound is not None:
            self._loop_fds.append(inbound.readable_fd)
        self._loops = LoopReaders([(fd, self._on_readable) for fd in self._loop_fds])
        self._closed = False

    # -- waiting threads ---------------------------------------------------

    def wait(
        self,
        done: Callable[[], object],
        deadline: float | None = None,
        futures: Sequence[Future] = (),
    ) -> bool:
        """Block until `done()`; False if `deadline` (perf_counter) passed first.

        `futures` are those that can make `done()` true, by ending or (streams) by an
        item; without any, a thread that does not lead looks again every few
        milliseconds.
        """
        inbox, turn = self._inbox, self._new_turn()
        woken, wakers = 0, None
        inbound = self._inbound
        with _gc(turn, _leave):
            try:
                while not done():
                    timeout_us = -1
                    busy = inbound is not None and inbound.busy
                    if busy or woken or deadline is not None:
                        timeout_us = self._timeout_us(deadline, woken, wakers)
                    event = _wait(inbox, turn, timeout_us, woken)
                    if event == _MAIL:
                        self._dispatch(turn)
                    elif event == _LED:
                        woken = 1
                        if futures:
                            wakers = partial(_wake_turn, turn)
                            for future in futures:
                                future.listen(wakers)
                    elif event == _LOOK and self._inbound is None:
                        pass
                    elif not self._went_on(event, turn, deadline):
                        return bool(done())
            finally:
                if wakers is not None:
                    for future in futures:
                        future.unlisten(wakers)
        self._turns.append(turn)
        return True

    def _new_turn(self) -> Any:
        """For one wait: a turn that was left, or a fresh one."""
        try:
            return self._turns.pop()
        except IndexError:
            return _new(_TURN)

    def _timeout_us(
        self, deadline: float | None, woken: int, wakers: object | None
    ) -> int:
        timeout = -1
        if deadline is not None:
            left = deadline - perf_counter()
            timeout = min(_FOREVER_US, int(left * 1e6) + 1) if left > 0 else 0
        inbound = self._inbound
        restless = inbound is not None and (inbound.restless or inbound.is_inside())
        if restless or (woken and wakers is None):
            timeout = _TICK_US if timeout < 0 else min(timeout, _TICK_US)
        return timeout

    def _went_on(self, event: int, turn: Any, deadline: float | None) -> bool:
        """Handle events rarer than a message; False if the wait is over."""
        if event == _SHUT:
            return False
        if event == _BOTH:
            self._dispatch(turn)
        if turn.leads:
            self._look_at_inbound()
        elif self._inbound is not None and self._inbound.is_inside():
            self._inbound.look(leads=False)
        late = event == _LATE and deadline is not None
        return not (late and deadline is not None and perf_counter() >= deadline)

    def _dispatch(self, turn: Any) -> None:
        dispatcher = self._dispatcher
        more = 1
        while more:
            serial = turn.serial
            dispatcher.dispatch(serial, _unpack(turn.data, turn.bytes))
            more = _handled(turn)
            dispatcher.dispatched(serial)
        self._look_at_inbound()

    def _look_at_inbound(self) -> bool:
        """For the leader; whether there were any events."""
        inbound = self._inbound
        return inbound is not None and inbound.busy and inbound.look()

    def wake(self) -> None:
        """Make a leader look again whose result came without a notice. Call after
        completing something outside of `Dispatcher.dispatch`."""
        lib.moo_inbox_wake(self._inbox)

    def try_drain(self) -> bool:
        """Dispatch all messages that are there, without waiting; whether there were
        any. If another thread leads, that one does it."""
        some = False
        turn = self._new_turn()
        with _gc(turn, _leave):
            while not self._closed:
                event = _wait(self._inbox, turn, 0, 0)
                if event in (_MAIL, _BOTH):
                    self._dispatch(turn)
                    some = True
                elif event != _LOOK:
                    some |= self._look_or_have_looked(turn)
                    break
        self._turns.append(turn)
        return some

    def _look_or_have_looked(self, turn: Any) -> bool:
        if turn.leads:
            return self._look_at_inbound()
        inbound = self._inbound
        if inbound is not None and inbound.restless:
            self.wake()  # the leader may sleep, and not know
        return False

    # -- asyncio -----------------------------------------------------------

    def attach(self, loop: Loop) -> None:
        """Let `loop` read the inbox whenever no thread leads. In the loop's thread."""
        before = len(self._loops)
        if self._loops.attach(loop):
            lib.moo_inbox_loops(self._inbox, len(self._loops) - before)
            loop.call_soon(self._on_readable)

    def _on_readable(self) -> None:
        if self._closed:
            return  # the descriptors may be somebody else's by now
        # A leading thread dispatches arrived messages, and tells the loop if it leaves
        # some behind.
        _clear(self._loop_fds[1])
        self.try_drain()

    def event(self) -> tuple[asyncio.Event, Callable[[], None]]:
        """An event of the running loop, and how to set it from any thread; from here
        on the loop reads the inbox."""
        import asyncio

        loop, event = asyncio.get_running_loop(), asyncio.Event()
        thread = threading.get_ident()

        def arrived() -> None:
            if threading.get_ident() == thread:
                event.set()
            else:
                _call_soon(loop, event.set)

        self.attach(loop)
        return event, arrived

    # -- the end -----------------------------------------------------------

    def disown(self) -> None:
        """In the child of a fork: wake nobody, because all waiting threads are the
        parent's."""
        self._closed = True
        self._inbound = None

    def close(self) -> None:
        """Release every waiting thread and loop."""
        self._closed = True
        self._inbound = None
        self._loops.detach()
        lib.moo_inbox_close(self._inbox)


def _call_soon(loop: Loop, callback: Callable[[], object]) -> None:
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        pass  # the loop is closed


def _clear(fd: int) -> None:
    try:
        os.read(fd, 8)
    except (BlockingIOError, OSError):
        pass
