# SPDX-License-Identifier: MIT
"""Actors that have several calls under way: async methods, or ``max_concurrency``.

An asyncio loop in the main thread reads the inbox and runs the async methods. Sync
methods never run on it: they run in threads of the actor's own, one at a time in an
async actor, ``max_concurrency`` of them otherwise. Calls start in the order in which
they were sent.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mooactor import errors
from mooactor.process.calls import context
from mooactor.process.interface import Interface
from mooactor.process.lifeline import Message
from mooactor.process.mailbox import Job
from mooactor.process.runtime import Runtime
from mooactor.process.worker import Worker

_END = object()


class ConcurrentWorker(Worker):
    """Runs up to `interface.concurrency` calls at once."""

    def __init__(self, runtime: Runtime, interface: Interface, life: Message) -> None:
        super().__init__(runtime, interface, life)
        self._limit = interface.concurrency
        threads = 1 if interface.is_async else self._limit
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="mooactor")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._ended: asyncio.Event | None = None
        self._due = False
        self._flush_due = False

    def run(self) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._main())
        self._threads.shutdown()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._ended = asyncio.Event()
        self.runtime.pump.attach(self._loop)
        self._start_jobs()
        await self._ended.wait()
        self.runtime.flush()

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

    def _start_jobs(self) -> None:
        self._due = False
        assert self._loop is not None and self._ended is not None
        while len(self.running) < self._limit:
            job = self.mailbox.take()
            if job is None:
                break
            self.running[(job.sender, job.call_id)] = job
            job.task = self._loop.create_task(self._run_job(job))
        if self.stopping and not self.running and not self.mailbox.has_ready():
            self._ended.set()

    async def _run_job(self, job: Job) -> None:
        try:
            await self._call(job)
        except asyncio.CancelledError:
            self.reply_error(job, errors.Cancelled("cancelled while it ran"))
        except Exception as error:
            self.reply_error(job, error)
        except BaseException as error:
            self._leave(job, error)
        finally:
            self.wake()

    async def _call(self, job: Job) -> None:
        spec, method, args, kwargs = self.prepare(job)
        context.set(job.context)
        if job.cancelled:
            raise errors.Cancelled("cancelled before it ran")
        if spec.kind == "async generator":
            await self._produce(job, method(*args, **kwargs))
            return
        if spec.kind == "generator":
            values = await self._in_thread(method, *args, **kwargs)
            await self._produce(job, _stepped(self._in_thread, iter(values)))
            return
        if spec.kind == "async":
            value = await method(*args, **kwargs)
        else:
            value = await self._in_thread(method, *args, **kwargs)
        if self._snapshot_every:
            self.snapshot(spec)
        self.reply(job, value)

    async def _in_thread(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        assert self._loop is not None
        here = contextvars.copy_context()
        return await self._loop.run_in_executor(
            self._threads, lambda: here.run(function, *args, **kwargs)
        )

    async def _produce(self, job: Job, items: Any) -> None:
        self.start_stream(job, asyncio.Event())
        try:
            async for item in items:
                while job.credit <= 0:
                    job.iterator.clear()
                    await job.iterator.wait()
                self.send_item(job, item)
        finally:
            await items.aclose()
        self.end_stream(job)

    def _leave(self, job: Job, error: BaseException) -> None:
        """A method raised SystemExit: end the process as it asked."""
        self.runtime.flush()
        assert self._loop is not None
        self._loop.call_soon(_raise, error)

    def resume(self, job: Job) -> None:
        if job.iterator is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(job.iterator.set)

    def cancel_running(self, job: Job) -> None:
        # A sync method only sees the flag in moo.current(); its reply still comes.
        spec = self._methods.get(job.name)
        if job.task is None or spec is None or self._loop is None:
            return
        if spec.kind != "sync":
            self._loop.call_soon_threadsafe(job.task.cancel)

    def send_reply(self, process_id: int, record: bytes) -> None:
        peer = self.runtime.messenger.peer(process_id)
        if threading.get_ident() != self._loop_thread or self._loop is None:
            peer.send(record)
            return
        self.runtime.queue_record(peer, record)
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        self.runtime.flush()


def _raise(error: BaseException) -> None:
    raise error


async def _stepped(in_thread: Any, items: Iterator[Any]) -> Any:
    """A sync generator as an async one, each step in the actor's thread."""
    try:
        while True:
            item = await in_thread(next, items, _END)
            if item is _END:
                return
            yield item
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            close()
