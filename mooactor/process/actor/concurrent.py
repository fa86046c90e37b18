# SPDX-License-Identifier: MIT
"""Actors that have several calls under way: async methods, or ``max_concurrency``.

An asyncio loop in the main thread reads the inbox and runs the async methods. Sync
methods never run on it: they run in threads of the actor's own, one at a time in an
async actor, ``max_concurrency`` of them otherwise. Calls start in the order in which
they were sent. A stream that waits for its consumer does not count as running, so it
holds up no other call; when it may go on, it comes before calls that have not begun.

A value is what it was when it was returned: it is encoded in the thread that made it,
before that thread begins anything else, and so is an item of a stream. Where there is
one thread for sync methods, the constructor runs there, too, and all share one context,
as in a serial actor; a snapshot is taken there, so it is never half of a method's work.
Each stream has a context of its own, for all its items.

An error of a sync method never passes through a future or a coroutine as an exception,
because a `StopIteration` cannot: it comes back from its thread as a value.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from mooactor import errors
from mooactor.control import envelope
from mooactor.process.actor.mailbox import Job
from mooactor.process.actor.replies import end_if_forked, mend_streams
from mooactor.process.actor.threads import tell_of_thread
from mooactor.process.actor.worker import Worker
from mooactor.process.calls import CallContext, context
from mooactor.process.interface import Interface, MethodSpec
from mooactor.process.protocol import Life

if TYPE_CHECKING:
    from mooactor.process.runtime import Runtime

_END = object()
Result = tuple[Any, BaseException | None]


class ConcurrentWorker(Worker):
    """Runs up to `interface.concurrency` calls at once."""

    def __init__(self, parts: Runtime, interface: Interface, life: Life) -> None:
        super().__init__(parts, interface, life)
        self._limit = interface.concurrency
        threads = 1 if interface.is_async else self._limit
        # Of the one thread for sync methods; None: there are several, or no methods.
        has_sync = any(not spec.is_async for spec in interface.methods.values())
        self._shared = contextvars.copy_context() if threads == 1 and has_sync else None
        self._threads = ThreadPoolExecutor(
            threads, thread_name_prefix="mooactor", initializer=tell_of_thread
        )
        self._runner = asyncio.Runner()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._ended: asyncio.Event | None = None
        self._due = False
        self._flush_due = False
        self._leaving = False
        self._parked: set[Job] = set()  # streams without room
        self._returning = 0  # of these: those that have room again
        self._turn = asyncio.Event()  # some of those may go on

    def run(self) -> None:
        # On SystemExit the process ends at once: nobody waits for other tasks then.
        self._runner.run(self._main(), context=contextvars.copy_context())

    def construct(self, make: Callable[[], Any]) -> Any:
        if self._shared is None:
            return make()
        return self._threads.submit(self._shared.run, make).result()

    def complete(self, hook: Awaitable[Any]) -> Any:
        async def completed() -> Any:
            return await hook

        if self._loop is not None and threading.get_ident() != self._loop_thread:
            return asyncio.run_coroutine_threadsafe(completed(), self._loop).result()
        return self._runner.run(completed(), context=contextvars.copy_context())

    def close(self) -> None:
        """The actor has ended: so do the tasks and threads that are left."""
        self._loop = None
        self._runner.close()
        self._threads.shutdown()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._ended = asyncio.Event()
        self.parts.poller.attach(self._loop)
        self._start_jobs()
        await self._ended.wait()
        self.parts.flush()

    def wake(self) -> None:
        super().wake()
        loop = self._loop
        if loop is None or self._due:
            return
        self._due = True
        if threading.get_ident() == self._loop_thread:
            loop.call_soon(self._start_jobs)
        else:
            loop.call_soon_threadsafe(self._start_jobs)

    def on_queued(self) -> None:
        self.wake()

    def _start_jobs(self) -> None:
        self._due = False
        if self._loop is None or self._ended is None or self._leaving:
            return
        while self._has_place():
            if self._returning:
                self._turn.set()
                return
            job = self.mailbox.take()
            if job is None:
                break
            self.running[(job.sender, job.call_id)] = job
            job.task = self._loop.create_task(self._run_job(job))
        if self.ended():
            self._ended.set()

    def _has_place(self) -> bool:
        return len(self.running) - len(self._parked) < self._limit

    def ahead_of(self, job: Job) -> CallContext | None:
        if self._limit > 1 or (job.sender, job.call_id) in self.running:
            return super().ahead_of(job)
        jobs = [one for one in list(self.running.values()) if one not in self._parked]
        calls: list[CallContext] = [one.context for one in jobs if one.context]
        return next((call for call in calls if call.started), None)

    # -- one call ----------------------------------------------------------

    async def _run_job(self, job: Job) -> None:
        try:
            value, error = await self._call(job)
        except BaseException as raised:
            value, error = None, raised
        if isinstance(error, asyncio.CancelledError) and job.cancelled:
            error = errors.Cancelled("cancelled while it ran")
        if not job.answered and not self._leaving:  # the process's death answers it
            if self._snapshots_elsewhere and not isinstance(error, SystemExit):
                await self._answer_with_snapshot(job, value, error)
            else:
                self._answer(job, value, error)
        self.wake()

    def _answer(self, job: Job, value: Any, error: BaseException | None) -> None:
        if job.iterator is not None:
            self.close_stream(job, error)
        elif error is not None:
            self.fail(job, error)
        else:
            self.succeed(job, value)

    async def _answer_with_snapshot(
        self, job: Job, value: Any, error: BaseException | None
    ) -> None:
        """Of an async method: its value is encoded here and now, its snapshot is taken
        in the thread of sync methods, so between two of them."""
        encoded = None
        if job.iterator is None and error is None:
            encoded = self.encoded(job, value)
            if encoded is None:
                return  # the caller has the error
        work: tuple[Any, ...] = (self._answer, job, value, error)
        if encoded is not None:
            work = (self.succeed, job, None, encoded)
        _, problem = await self._in_thread(contextvars.copy_context(), *work)
        if problem is not None:
            self.reply_error(job, problem)

    async def _call(self, job: Job) -> Result:
        prepared, error = _caught(self.prepare, job)
        if error is not None:
            return None, error
        spec, method, args, kwargs = prepared
        if not spec.is_async:
            job.context.started = False
            job.context.in_thread = self.interface.is_async
        context.set(job.context)
        if spec.kind == "async":
            return await method(*args, **kwargs), None
        if spec.streams:
            return await self._stream(job, spec, method, args, kwargs)
        here = self._shared or contextvars.copy_context()
        return await self._in_thread(
            here, method, *args, then=lambda *result: self._told(job, *result), **kwargs
        )

    def _told(self, job: Job, value: Any, error: BaseException | None) -> Result:
        """In the method's thread: answer the call, but for a wish to end."""
        if isinstance(error, SystemExit) or self._leaving:
            return value, error
        self._answer(job, value, error)
        return None, None

    async def _in_thread(
        self,
        here: contextvars.Context,
        function: Callable[..., Any],
        *args: Any,
        then: Callable[..., Result] | None = None,
        **kwargs: Any,
    ) -> Result:
        """Run it in that context. `then` gets its result in the same thread."""
        assert self._loop is not None
        mend_streams()
        work = [(function, args, kwargs)]
        return await self._loop.run_in_executor(
            self._threads, self._run_in, context.get(), here, work, then
        )

    def _run_in(
        self,
        call: Any,
        here: contextvars.Context,
        work: list[Any],
        then: Callable[..., Result] | None,
    ) -> Result:
        """In a thread of the actor's own. It takes the work out of the list: what the
        method did not keep is let go of before the reply, not after."""
        function, args, kwargs = work.pop()
        here.run(context.set, call)
        if not call.started:
            _, error = _caught(self.check_turn, call)
            if error is not None:
                return None, error
        call.started = True
        call.thread = threading.get_ident()
        if call.in_thread:
            self.current = call
        try:
            result = here.run(_caught, function, *args, **kwargs)
            del args, kwargs
            return result if then is None else here.run(then, *result)
        finally:
            if call.in_thread:
                self.current = None

    @property
    def _snapshots_elsewhere(self) -> bool:
        """Whether one must not be taken on the loop: it is async, or there is a thread
        whose methods change the state, too."""
        if not self._snapshot_every:
            return False
        take = getattr(self.instance, "__snapshot__", None)
        return self._shared is not None or inspect.iscoroutinefunction(take)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """In the thread of sync methods: the loop stands still meanwhile."""
        if self._loop is None or threading.get_ident() == self._loop_thread:
            yield
            return
        stands, go_on = threading.Event(), threading.Event()

        def stand() -> None:
            stands.set()
            go_on.wait()

        self._loop.call_soon_threadsafe(stand)
        stands.wait()
        try:
            yield
        finally:
            go_on.set()

    def leave(self, job: Job, error: SystemExit) -> None:
        self._leaving = True
        self.parts.flush()
        assert self._loop is not None
        self._loop.call_soon(_raise, error)

    # -- streams -----------------------------------------------------------

    async def _stream(
        self,
        job: Job,
        spec: MethodSpec,
        method: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Result:
        if not job.flags & envelope.STREAM:
            return None, TypeError(
                f"{self.name_of(job)} is a generator: call it by a handle, which gives "
                "a stream; a group cannot take its items"
            )
        job.iterator = asyncio.Event()
        if spec.kind == "async generator":
            items, error = _caught(lambda: aiter(method(*args, **kwargs)))
            if error is not None:
                return None, error
            return await self._produce(job, lambda: self._next_of(job, items), items)
        here = self._shared.copy() if self._shared else contextvars.copy_context()
        items, error = await self._in_thread(
            here, lambda: iter(method(*args, **kwargs))
        )
        if error is not None:
            return None, error
        return await self._produce(
            job, lambda: self._in_thread(here, self._item_of, job, items), items, here
        )

    def _item_of(self, job: Job, items: Any) -> Any:
        """The record of the next item; `_END` if there is none."""
        item = next(items, _END)
        return item if item is _END else self.encoded_item(job, item)

    async def _next_of(self, job: Job, items: Any) -> Result:
        try:
            return self.encoded_item(job, await anext(items)), None
        except StopAsyncIteration:
            return _END, None

    async def _produce(
        self,
        job: Job,
        step: Callable[[], Awaitable[Result]],
        items: Any,
        here: contextvars.Context | None = None,
    ) -> Result:
        """Send items while the consumer has room; close the generator in any case."""
        error: BaseException | None = None
        try:
            while await self._room(job):
                record, error = await step()
                if error is not None or record is _END:
                    break
                self.send_encoded(job, record)
        except BaseException as raised:
            error = raised
        problem = await self._closed(items, here)
        return None, problem if error is None else error

    async def _room(self, job: Job) -> bool:
        """Wait until the consumer has room; False once it is gone."""
        if job.credit > 0 or job.cancelled:
            return not job.cancelled
        self._parked.add(job)
        self.wake()
        try:
            while job.credit <= 0 and not job.cancelled:
                job.iterator.clear()
                await job.iterator.wait()
            await self._place()
        finally:
            self._parked.discard(job)
        return not job.cancelled

    async def _place(self) -> None:
        """Wait until a stream that was parked may run again."""
        self._returning += 1
        try:
            while not self._has_place():
                self._turn.clear()
                await self._turn.wait()
        finally:
            self._returning -= 1
            self.wake()

    async def _closed(
        self, items: Any, here: contextvars.Context | None
    ) -> BaseException | None:
        """Close a generator where it ran; return its exception."""
        try:
            if hasattr(items, "aclose"):
                await items.aclose()
            elif hasattr(items, "close") and here is not None:
                return (await self._in_thread(here, items.close))[1]
        except BaseException as error:
            return error
        return None

    def resume(self, job: Job) -> None:
        if job.iterator is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(job.iterator.set)

    def cancel_running(self, job: Job) -> None:
        # A method in a thread only sees the flag: in moo.current(), or between items.
        # So does a task that has not begun: to cancel it would skip its answer.
        spec = self._methods.get(job.name)
        if job.context is None or spec is None or self._loop is None:
            return
        if spec.kind.startswith("async"):
            self._loop.call_soon_threadsafe(job.task.cancel)
        else:
            self.resume(job)

    # -- replies -----------------------------------------------------------

    def send_reply(self, process_id: int, record: bytes) -> None:
        peer = self.parts.messenger.peer(process_id)
        if threading.get_ident() != self._loop_thread or self._loop is None:
            peer.send(record)
            return
        self.parts.sender.queue_record(peer, record)
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        self.parts.flush()


def _caught(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Result:
    """The result of a function, and its exception, as values."""
    try:
        value, error = function(*args, **kwargs), None
    except BaseException as raised:
        value, error = None, raised
    end_if_forked(error)  # nobody in a forked child hears of the end of this thread
    return value, error


def _raise(error: BaseException) -> None:
    raise error
