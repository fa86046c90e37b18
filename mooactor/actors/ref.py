# SPDX-License-Identifier: MIT
"""`Ref`: the result that a call will have, or data that `moo.put` stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Generic, TypeVar

from mooactor import errors
from mooactor.control import codec
from mooactor.process.calls import context
from mooactor.process.checks import function, seconds
from mooactor.process.current import current_runtime
from mooactor.process.deadlock import Wait
from mooactor.process.loops import refuse_to_block, running_loop
from mooactor.process.objects.borrow import borrowing_in_progress
from mooactor.process.objects.future import STORED, Future
from mooactor.process.objects.holds import Hold, claimed
from mooactor.process.objects.results import Fetched
from mooactor.process.objects.table import PINNED
from mooactor.process.runtime import Runtime

R_co = TypeVar("R_co", covariant=True)


class Ref(Future, Awaitable[R_co], Generic[R_co]):
    """A result to come. Small and picklable; get it, await it, or pass it on.

    Passed as an argument of a call (not inside another object), it hands its value to
    the callee, straight from the process that has it. Inside other objects, or pickled
    by hand, it stays a Ref, which its receiver can `get`. The value lives as long as
    anybody holds a Ref to it and the process that made it lives; one pickled by hand
    keeps it alive until the session ends. A copy of a Ref is the Ref itself.

    Cancelling a task that awaits a Ref cancels the call, as with an `asyncio.Future`:
    so `asyncio.wait_for` ends the call when it times out. It does not when somebody
    else awaits the same Ref, has a callback on it or was passed it, nor with
    `asyncio.shield`.

    A Ref also has the methods of `concurrent.futures.Future`: `result`, `exception`,
    `add_done_callback`.
    """

    __slots__ = ("_runtime", "_of", "_timeout", "home")
    speaks = True

    def __init__(
        self, runtime: Runtime, of: object, timeout: float | None = None
    ) -> None:
        Future.__init__(self)
        self._runtime = runtime
        self._of = of  # the call or object that it is of; its str() is for messages
        self._timeout = timeout
        self.home: Hold | None = None  # once others may ask for it

    @property
    def _label(self) -> str:
        return str(self._of)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        codec.learn(cls, lambda ref: _lend(ref))  # which goes by the very type

    # -- reading -----------------------------------------------------------

    def get(self, timeout: float | None = None) -> R_co:
        """The value, once it is there.

        A Ref has one value in each process: every `get` returns the same object, and
        the next one shows all that was written into it. After a write into a call's
        result, a process that gets the Ref from here sees it, too; after one into a
        value of `moo.put` it does not. If the Ref is used further, copy the value
        before you change it.

        If a signal handler raises meanwhile, as that of Ctrl-C does, nothing has
        changed, and the next `get` gives the value.

        Args:
          timeout: seconds to wait; the call itself goes on if they pass.

        Raises:
          CallTimeout: `timeout`, or the call's own deadline, passed first.
          RuntimeError: called on a running event loop, which it would freeze.
          BaseException: the method raised it, or the named error of the call.
        """
        if self.state <= 0:
            self._wait(timeout, read=True)
        try:
            value: R_co = self.unwrap()
            return value
        finally:
            del self  # see `unwrap`

    result = get

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error that it ended with, or None; waits as `get` does, but a result
        that is stored on another host stays there."""
        if not self.state:
            self._wait(timeout)
        return self.failure()

    def _wait(self, timeout: float | None, *, read: bool = False) -> None:
        if self.is_here():
            return
        if running_loop() is not None:
            refuse_on_loop(self._label)
        self.block(None if timeout is None else seconds("timeout", timeout), read=read)

    def block(self, timeout: float | None = None, *, read: bool = True) -> None:
        """Wait until it is done, in a thread that may wait. `read`: and until its value
        is here.

        Raises:
          CallTimeout, ActorUnavailable: it is not, as `get` says.
        """
        calls: Sequence[Future] = self.parts or (self,)
        if read:
            for call in calls:
                call.wanted = True
        if self.home is not None or self._runtime.closed:
            self._begin()
        deadline = None if timeout is None else perf_counter() + timeout
        wait_some = self._runtime.wait_some
        if not (
            self.state or wait_some(calls, len(calls), lambda: self.state, timeout)
        ):
            raise self._not_done(timeout)
        if read and self.state < 0 and (pulls := self.pull()):
            if deadline is not None:
                timeout = max(0.0, deadline - perf_counter())
            if not wait_some(pulls, len(pulls), self.is_here, timeout):
                raise self._not_done(timeout)

    def want(self) -> None:
        """Have its value fetched as soon as it is there: somebody will read it."""
        for call in self.parts or (self,):
            call.wanted = True
        if self.home is not None or self._runtime.closed:
            self._begin()
        if self.state == STORED:
            self.pull()

    def _not_done(self, timeout: float | None) -> BaseException:
        if self._runtime.closed:
            return self._runtime.over(self._label, was_sent=bool(self.call_id))
        if timeout is None:
            return errors.CallTimeout(
                f"{self._label} was not done within the deadline of the call that "
                "waits for it; give that call a longer timeout"
            )
        return errors.CallTimeout(
            f"{self._label} was not done within {timeout} s; it goes on: wait again, "
            "or cancel it"
        )

    def expire(self) -> None:
        """Its own deadline has passed: it ends now, and the callee is told."""
        error = deadline_passed(self._label, self._timeout)
        self._runtime.caller.abandon(self, error)

    def _look(self) -> None:
        """Take note of a result, or an end, that has arrived."""
        self._begin()
        if self.state:
            return
        self._runtime.flush()
        self._runtime.poller.try_drain()
        for call in self.parts or (self,):
            if call.deadline is not None and perf_counter() > call.deadline:
                call.expire()

    def done(self) -> bool:
        """Whether the call has ended, so that `get` need not wait for it; a large
        result of another host may be still there. Handles arrived messages first."""
        if not self.state:
            self._look()
        return self.state != 0

    def cancel(self) -> bool:
        """Give it up; True unless it was done already.

        A queued call never runs; an async method gets `asyncio.CancelledError` at its
        next await; a sync method that runs sees ``moo.current().cancelled``.
        """
        self.end_with_session()
        if self.state:
            return False
        return self._runtime.caller.cancel(self)

    def cancelled(self) -> bool:
        """Whether it ended by `cancel`."""
        return self.state != 0 and isinstance(self.failure(), errors.Cancelled)

    def running(self) -> bool:
        """Whether it is not done yet."""
        return not self.done()

    def add_done_callback(self, callback: Callable[[Ref[R_co]], object]) -> None:
        """Call `callback(self)` once it is done: at once if it is, else in a thread of
        the runtime for callbacks. It may wait for other calls. An error out of it is
        printed."""
        function("callback", callback)
        runtime = self._runtime
        self._begin()
        if self.state:
            _call(callback, self)
            return
        once = iter((partial(_call, callback, self),))
        self.listen(lambda: runtime.callbacks.submit(once))
        if not runtime.closed:
            runtime.housekeeper.arm()

    # -- asyncio -----------------------------------------------------------

    def __await__(self) -> Generator[Any, None, R_co]:
        if self.state <= 0:
            yield from self._arrival().__await__()
        try:
            value: R_co = self.unwrap()
            return value
        finally:
            del self  # see `unwrap`

    async def _arrival(self) -> None:
        """Sleep, on the running loop, until its value is here or its deadline
        passes."""
        self.want()
        if not self.state:
            await self._end_of(self, self.parts or (self,))
        for pull in self.pull():
            await self._end_of(pull, (pull,))

    async def _end_of(self, future: Future, calls: Sequence[Future]) -> None:
        """Sleep until a future, which is made of `calls`, is done."""
        import asyncio

        try:
            await news_of(self._runtime, (future,), Wait(calls, len(calls)))
        except asyncio.CancelledError:
            self._give_up()
            raise

    def _give_up(self) -> None:
        """The task that awaited it was cancelled: so is the call, unless somebody
        else waits for it, too, or may have it."""
        if self.home is None and not self._listeners:
            self.cancel()

    # -- travelling --------------------------------------------------------

    def _begin(self) -> None:
        """Request a borrowed value, when it is first wanted."""
        if self._runtime.closed:
            self.end_with_session()
        home = self.home
        if home is None or self.state or self.call_id:
            return
        if home.owner == self._runtime.process_id:
            return  # a result, which comes by itself
        self._runtime.values.fetch(home.owner, home.object_id, self._take)
        self.call_id = -1  # asked for, once, unless a signal handler cut that short

    def end_with_session(self) -> None:
        runtime = self._runtime
        if not runtime.closed or self.state:
            return
        for future in (*self.parts, self):
            end_with(runtime, future, self._label)

    def _take(self, source: Future) -> None:
        """Its value is here; whoever reads it decodes it."""
        self.set_raw(Fetched(source))

    def take_over(self) -> None:
        """Fetch a borrowed value, whose owner ends, and own it from there on."""
        self._begin()
        self.listen(self._leave_home)

    def _leave_home(self) -> None:
        self.home = None

    def _hold(self) -> Hold:
        """The owner and number by which other processes know it.

        Raises:
          ActorUnavailable: its session has ended.
        """
        runtime = self._runtime
        if runtime.closed:
            raise runtime.over(f"{self._label} cannot be passed on")
        away = self.elsewhere() if self.home is None else None
        if away is not None and (home := away.home) is not None:
            return home
        if self.home is None:
            number = runtime.objects.new_id()
            self.home = Hold(runtime.borrows, runtime.process_id, number)
        return self.home

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by hand: for nobody in particular, perhaps more than once."""
        hold = self._hold()
        borrows = self._runtime.borrows
        borrows.lend(hold, PINNED, borrows.process_id, self)  # one number for all
        mark = self._runtime.session_mark
        return (_by_hand, (mark, hold.owner, hold.object_id, self._label))

    def unpin(self) -> None:
        """Nobody will unpickle what picklings by hand here have made."""
        hold, borrows = self._hold(), self._runtime.borrows
        borrows.give_back(hold.owner, hold.object_id, borrows.process_id)

    def __copy__(self) -> Ref[R_co]:
        return self

    def __deepcopy__(self, memo: object) -> Ref[R_co]:
        return self

    def __repr__(self) -> str:
        if not self.state:
            return f"<Ref {self._label} pending>"
        return f"<Ref {self._label} {'failed' if self.failure() else 'done'}>"


async def news_of(
    runtime: Runtime,
    futures: Sequence[Future],
    wait: Wait,
    here: Callable[[], bool] = lambda: False,
) -> None:
    """Sleep, on the running loop, until one of these has news: its end, or an item of a
    stream. `wait`: as the search for deadlocks sees it. `here`: whether there are news
    that came before, of which none of them tells."""
    import asyncio

    event, arrived = runtime.poller.event()
    for future in futures:
        future.listen(arrived)
    asyncio.get_running_loop().call_soon(runtime.flush)
    call = context.get()
    if call is not None:
        call.awaits.append(wait)
    try:
        if not here():
            await event.wait()
    finally:
        if call is not None:
            call.awaits.remove(wait)
        for future in futures:
            future.unlisten(arrived)


class Told(Ref[None]):
    """In place of a Ref, for a `tell`; nobody gets to see it."""

    __slots__ = ()
    told, speaks = True, False


def deadline_passed(label: str, timeout: float | None) -> errors.CallTimeout:
    """The error of a call whose own deadline has passed."""
    limit = f" of {timeout} s" if timeout is not None else ""
    return errors.CallTimeout(
        f"{label} did not end within its deadline{limit}; "
        "it may have run (use .options(timeout=…) to allow more)"
    )


def _lend(ref: Ref[Any]) -> Any:
    """How a pickler of ours reduces a Ref: the receiver borrows it."""
    borrowing = borrowing_in_progress()
    if borrowing is None:
        return NotImplemented
    hold = ref._hold()
    borrowing.add(hold, ref)
    return (_borrowed, (hold.owner, hold.object_id, ref._label))


codec.learn(Ref, _lend)


def _borrowed(owner: int, object_id: int, label: str) -> Ref[Any]:
    found = claimed(owner, object_id)
    if isinstance(found, Ref):
        return found
    return _known_as(found or Hold(current_runtime().borrows, owner, object_id), label)


def _by_hand(mark: bytes, owner: int, object_id: int, label: str) -> Ref[Any]:
    runtime = current_runtime()
    if mark == runtime.session_mark:
        return _known_as(Hold(runtime.borrows, owner, object_id), label)
    ref: Ref[Any] = Ref(runtime, label)
    ref.set_error(
        errors.ActorUnavailable(
            f"{label} belongs to a session that has ended; call again in this one"
        )
    )
    return ref


def _known_as(hold: Hold, label: str) -> Ref[Any]:
    runtime = current_runtime()
    ref: Ref[Any] = Ref(runtime, label)
    if hold.owner == runtime.process_id:
        entry = runtime.objects.entry(hold.object_id)
        if entry is None:
            ref.set_error(
                errors.ActorUnavailable(
                    f"the value of {label} has been freed, because no Ref to it was "
                    "left; compute it again"
                )
            )
            return ref
        if isinstance(entry.future, Ref):
            return entry.future
        ref.set_raw(entry.stored)
    elif runtime.inbound is not None:
        runtime.results.borrowed.add(ref)
    ref.home = hold
    return ref


def _call(callback: Callable[[Ref[Any]], object], ref: Ref[Any]) -> None:
    try:
        callback(ref)
    except Exception:
        import traceback

        traceback.print_exc()


def end_with(runtime: Runtime, future: Future, label: str) -> None:
    """End a future that a closed runtime did not know of."""
    if runtime.forked:
        # They belong to threads and event loops of the parent, and so do their
        # wake-ups.
        future._listeners.clear()
    if not future.state:
        future.hear()
        future.set_error(runtime.over(label, was_sent=bool(future.call_id)))


def refuse_on_loop(what: str) -> None:
    """Raise if waiting for `what` would freeze an asyncio program; see `loops`.

    Raises:
      RuntimeError: it would; the message says what to write instead.
    """
    refuse_to_block(what, "`await handle.method.remote(…)` (or `await ref`)")
