# SPDX-License-Identifier: MIT
"""The usual actor: one method at a time.

The thread that runs the methods is the one that reads the inbox: a call goes from the
socket into the method without a hand-over.
"""

from __future__ import annotations

from collections.abc import Awaitable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from mooactor.control import envelope
from mooactor.process.actor.mailbox import Job
from mooactor.process.actor.replies import mend_streams
from mooactor.process.actor.worker import Worker
from mooactor.process.calls import context
from mooactor.process.interface import Interface
from mooactor.process.protocol import Life

if TYPE_CHECKING:
    from mooactor.process.runtime import Runtime

_SLOW_S = 100e-6  # replies that wait leave before a method that takes longer
_VERY_SLOW_S = 2e-3  # another thread should read the inbox meanwhile
_REPLY_DELAY_S = 200e-6


class SerialWorker(Worker):
    """One method at a time, in the process's main thread.

    A generator that is out of credit lets other calls run until it may go on.
    """

    def __init__(self, parts: Runtime, interface: Interface, life: Life) -> None:
        super().__init__(parts, interface, life)
        self._seconds: dict[bytes, float] = {}  # running mean, by method
        self._oldest_reply = 0.0

    def run(self) -> None:
        parts, mailbox, has_work = self.parts, self.mailbox, self._has_work
        poller = parts.poller
        while True:
            job = mailbox.take()
            if job is not None:
                self._run_job(job)
                continue
            parts.flush_if_due()
            if self._stop_asked and self.ended():
                parts.flush()
                return
            poller.wait(has_work)

    def _has_work(self) -> bool:
        return self.mailbox.has_ready() or (self._stop_asked and self.idle())

    def complete(self, hook: Awaitable[Any]) -> Any:
        import asyncio

        async def completed() -> Any:
            return await hook

        return asyncio.run(completed())

    def leave(self, job: Job, error: SystemExit) -> None:
        self.parts.flush()
        raise error

    def cancel_running(self, job: Job) -> None:
        if job.parked:
            job.parked = False
            self.mailbox.put_first(job)
            self.wake()

    def resume(self, job: Job) -> None:
        if job.parked and job.credit > 0:
            job.parked = False
            self.mailbox.put_first(job)
            self.wake()

    def send_reply(self, process_id: int, record: bytes) -> None:
        # With more to do, replies share a send; `run` flushes before it sleeps.
        parts = self.parts
        peer = parts.messenger.peer(process_id)
        if not self.mailbox.has_ready():
            peer.send(record)
        elif peer.queue(record):
            if not parts.sender.dirty:
                self._oldest_reply = perf_counter()
            parts.sender.dirty.add(peer)

    def _run_job(self, job: Job) -> None:
        if job.iterator is None:
            self.running[(job.sender, job.call_id)] = job
        expected = self._seconds.get(job.name)
        if self.parts.sender.dirty and (expected is None or expected > _SLOW_S):
            self.parts.flush()
        if expected is not None and expected > _VERY_SLOW_S:
            mend_streams()
            self.parts.housekeeper.arm()
        start = perf_counter()
        if job.iterator is None:
            self._call(job)
        else:
            self._go_on(job)
        now = perf_counter()
        took = now - start
        self._seconds[job.name] = (
            took if expected is None else 0.75 * expected + 0.25 * took
        )
        if self.parts.sender.dirty and now - self._oldest_reply > _REPLY_DELAY_S:
            self.parts.flush()
        if took > _SLOW_S:
            self.parts.poller.try_drain()  # cancellations, higher priorities

    def _call(self, job: Job) -> None:
        try:
            _, method, args, kwargs = self.prepare(job)
            self.current = job.context
            context.set(job.context)
            value = method(*args, **kwargs)
            del args, kwargs  # memory that the method did not keep, before the reply
            if job.flags & envelope.STREAM:
                job.iterator = iter(value)
        except BaseException as error:
            self.fail(job, error)
        else:
            if job.iterator is None:
                self.succeed(job, value)
            else:
                self._go_on(job)
        finally:
            self.current = None
            context.set(None)

    def _go_on(self, job: Job) -> None:
        """Let a generator produce, until it ends or is out of credit."""
        self.current = job.context
        context.set(job.context)
        try:
            if not self._parked(job):
                self.close_stream(job, _closed(job.iterator))
        except BaseException as error:
            _closed(job.iterator)
            self.close_stream(job, error)
        finally:
            self.current = None
            context.set(None)

    def _parked(self, job: Job) -> bool:
        """Produce items while the consumer has room; False once there are no more."""
        poller = self.parts.poller
        while not job.cancelled:
            if job.credit <= 0:
                poller.try_drain()
                if job.credit <= 0:
                    job.parked = True
                    if job.credit <= 0 and not job.cancelled:
                        return True
                    job.parked = False  # something came meanwhile
                    continue
            try:
                item = next(job.iterator)
            except StopIteration:
                return False
            self.send_encoded(job, self.encoded_item(job, item))
            if perf_counter() - self._oldest_reply > _REPLY_DELAY_S:
                self.parts.flush()
                poller.try_drain()
        return False


def _closed(iterator: Any) -> BaseException | None:
    """Close a generator, if it is one; return its exception."""
    try:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()
    except BaseException as error:
        return error
    return None
