# SPDX-License-Identifier: MIT
"""`Ref`: the result that a call will have, or data that `moo.put` stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from time import perf_counter
from typing import Any, Generic, NamedTuple, TypeVar

from mooactor import errors
from mooactor.control import envelope
from mooactor.process.calls import context
from mooactor.process.current import current_runtime
from mooactor.process.lending import lent_to
from mooactor.process.objects import PINNED
from mooactor.process.outcome import Outcome
from mooactor.process.runtime import Runtime

R_co = TypeVar("R_co", covariant=True)


class Home(NamedTuple):
    """Where a value is kept, once others may ask for it."""

    owner: int
    object_id: int


class Ref(Outcome, Awaitable[R_co], Generic[R_co]):
    """A result to come. Small and picklable; get it, await it, or pass it on.

    Passed as an argument of a call (not inside another object), it hands its value to
    the callee, straight from the process that has it. Inside other objects, or pickled
    by hand, it stays a Ref, which whoever receives it can `get`; one pickled by hand
    keeps its value alive until the session ends.

    A Ref also has the methods of `concurrent.futures.Future`: `result`, `exception`,
    `add_done_callback`.
    """

    __slots__ = ("_runtime", "_of", "_deadline", "_timeout", "home")

    def __init__(
        self, runtime: Runtime, of: object, timeout: float | None = None
    ) -> None:
        Outcome.__init__(self)
        self._runtime = runtime
        self._of = of  # what it is the result of; its str() is for messages
        self._timeout = timeout
        self._deadline = None if timeout is None else perf_counter() + timeout
        self.home: Home | None = None

    @property
    def _label(self) -> str:
        return str(self._of)

    # -- reading -----------------------------------------------------------

    def get(self, timeout: float | None = None) -> R_co:
        """The value, once it is there.

        Args:
          timeout: seconds to wait; the call itself goes on if they pass.

        Raises:
          CallTimeout: `timeout`, or the call's own deadline, passed first.
          RuntimeError: called on a running event loop, which it would freeze.
          BaseException: what the method raised, or the named error it ended with.
        """
        if not self.state:
            self._wait(timeout)
        value: R_co = self.unwrap()
        return value

    result = get

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error that it ended with, or None; waits as `get` does."""
        if not self.state:
            self._wait(timeout)
        return self.failure()

    def _wait(self, timeout: float | None) -> None:
        if asyncio._get_running_loop() is not None:
            refuse_on_loop(self._label)
        self._begin()
        left = timeout
        if self._deadline is not None:
            own = max(0.0, self._deadline - perf_counter())
            left = own if timeout is None else min(own, timeout)
        if self._runtime.wait(self, left):
            return
        if timeout is not None and (left is None or left >= timeout):
            raise errors.CallTimeout(
                f"{self._label} was not done within {timeout} s; it goes on"
            )
        self.expire()

    def expire(self) -> None:
        """Its own deadline has passed: it ends now, and the callee is told."""
        limit = f" of {self._timeout} s" if self._timeout is not None else ""
        error = errors.CallTimeout(
            f"{self._label} did not end within its deadline{limit}; "
            "it may have run (use .options(timeout=…) to allow more)"
        )
        if self.set_error(error):
            self._runtime.caller.abandon(self)

    def done(self) -> bool:
        """Whether `get` would return at once. Looks at what has arrived."""
        if not self.state:
            self._begin()
            self._runtime.flush()
            self._runtime.pump.try_drain()
        return self.state != 0

    def cancel(self) -> bool:
        """Give it up; True unless it was done already.

        A queued call never runs; an async method gets `asyncio.CancelledError` at its
        next await; a sync method that runs sees ``moo.current().cancelled``.
        """
        return self._runtime.caller.cancel(self)

    def cancelled(self) -> bool:
        """Whether it ended by `cancel`."""
        return self.state != 0 and isinstance(self.failure(), errors.Cancelled)

    def running(self) -> bool:
        """Whether it is not done yet."""
        return not self.done()

    def add_done_callback(self, callback: Callable[[Ref[R_co]], object]) -> None:
        """Call `callback(self)` once it is done: at once if it is, else in a thread of
        the runtime. What it raises is printed."""
        self._begin()
        self.listen(lambda: _call(callback, self))
        self._runtime.pump.arm()

    # -- asyncio -----------------------------------------------------------

    def __await__(self) -> Generator[Any, None, R_co]:
        if not self.state:
            yield from self._arrival().__await__()
        value: R_co = self.unwrap()
        return value

    async def _arrival(self) -> None:
        """Sleep, on the running loop, until it is done or its deadline passes."""
        loop = asyncio.get_running_loop()
        event, arrived = self._runtime.pump.arrival()
        self._begin()
        self.listen(arrived)
        loop.call_soon(self._runtime.flush)
        timer = None
        if self._deadline is not None:
            left = max(0.0, self._deadline - perf_counter())
            timer = loop.call_later(left, self.expire)
        call = context.get()
        if call is not None:
            call.awaits.append(self)
        try:
            await event.wait()
        finally:
            if call is not None:
                call.awaits.remove(self)
            self.unlisten(arrived)
            if timer is not None:
                timer.cancel()

    # -- travelling --------------------------------------------------------

    def _begin(self) -> None:
        """A borrowed value is asked for when somebody first wants it."""
        home = self.home
        if home is None or self.state or self.call_id:
            return
        self.call_id = -1  # asked for, once
        source = self._runtime.values.fetch(home.owner, home.object_id, self._label)
        source.listen(lambda: self._take(source))

    def _take(self, source: Outcome) -> None:
        error = source.failure()
        if error is not None:
            self.set_error(error)
        else:
            self.set_value(source.unwrap())

    def __reduce__(self) -> tuple[Any, ...]:
        runtime = self._runtime
        borrower = lent_to()
        if self.home is None:
            self.home = Home(runtime.process_id, runtime.objects.adopt(self))
        owner, object_id = self.home
        runtime.values.lend(object_id, owner, PINNED if borrower is None else borrower)
        return (_borrowed, (owner, object_id, self._label))

    def __del__(self) -> None:
        home = self.home
        if home is None or self._runtime.closed:
            return
        if home.owner == self._runtime.process_id:
            self._runtime.objects.drop_local(home.object_id)
            self._runtime.pump.arm_if_helped()
        else:
            self._runtime.post_later(home.owner, envelope.RELEASE, home.object_id)

    def __repr__(self) -> str:
        if not self.state:
            return f"<Ref {self._label} pending>"
        return f"<Ref {self._label} {'failed' if self.failure() else 'done'}>"


def _borrowed(owner: int, object_id: int, label: str) -> Ref[Any]:
    runtime = current_runtime()
    ref: Ref[Any] = Ref(runtime, label)
    if owner == runtime.process_id:
        entry = runtime.objects.come_home(object_id, owner)
        if entry is None:
            ref.set_error(errors.ActorUnavailable(f"the value of {label} is gone"))
            return ref
        if isinstance(entry.outcome, Ref):
            return entry.outcome
        ref.set_raw(entry.stored)
    ref.home = Home(owner, object_id)
    return ref


def _call(callback: Callable[[Ref[Any]], object], ref: Ref[Any]) -> None:
    try:
        callback(ref)
    except Exception:
        import traceback

        traceback.print_exc()


def refuse_on_loop(what: str) -> None:
    """Raise if this thread runs an event loop, which a blocking wait would freeze.

    Raises:
      RuntimeError: it does; the message says what to write instead.
    """
    if asyncio._get_running_loop() is not None:
        raise RuntimeError(
            f"waiting for {what} would block the running event loop; write "
            "`await handle.method.remote(…)` (or `await ref`) here"
        )
