# SPDX-License-Identifier: MIT
"""Replies: replies and errors to the calls that an actor has accepted.

Invariant: **every job that an actor has accepted is answered exactly once**, or the
actor's death answers it. So no caller waits for ever, for any behaviour of a method.

The rule for exceptions is the same for every kind of actor, and `Replies.fail` is the
one place that applies it. It holds for any `BaseException` out of a method, a generator
or an argument's unpickling:

* `SystemExit` out of a method is the actor's own wish to end. The replies of calls that
  have ended leave first; then the process exits with that code, and the call that
  raised it ends with the actor's death. From elsewhere (unpickling, ``__snapshot__``)
  it is an error like others, but never crosses as `SystemExit`, which would end the
  caller.
* Everything else goes to the caller as its own type, and the actor lives: also
  `KeyboardInterrupt`, `GeneratorExit`, `StopIteration` and `asyncio.CancelledError`.
* A stream cannot end with a `StopIteration`, which would end its consumer's loop as if
  all had arrived: it becomes a `RuntimeError`, as Python has it in generators.
* A result that cannot be pickled becomes a `TypeError` that names it.
* Errors of a `tell`, for which nobody waits, are printed by the actor.

A snapshot follows every call that may have changed the actor's state: also one that
raised, and a generator that has ended. It is taken before the answer leaves. If taking
it fails, the caller gets that error instead of the value: otherwise it would have seen
a state that a restart takes back.

A child that a method forked answers nothing: it ends where it would return.
"""

from __future__ import annotations

import abc
import inspect
import os
import socket
import sys
from collections.abc import Awaitable, Sequence
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from mooactor import errors
from mooactor.control import bodies, codec, envelope, inspection
from mooactor.control.complaints import complain
from mooactor.control.keys import every_incarnation
from mooactor.process import current as _process
from mooactor.process import parcel
from mooactor.process.actor.mailbox import Job
from mooactor.process.calls import context
from mooactor.process.deaths import StartedCalls
from mooactor.process.interface import Interface
from mooactor.process.objects.borrow import Borrowing
from mooactor.process.objects.table import Stored
from mooactor.process.protocol import Life, Snapshot

if TYPE_CHECKING:
    from mooactor.process.runtime import Runtime

_ENDS_OF_LOOPS = (StopIteration, StopAsyncIteration)


class Encoded(NamedTuple):
    """A result as it is sent: the payload, its flags, and what both are made of, which
    a third process may get, too."""

    payload: bytes
    flags: int
    parts: tuple[bytes, codec.Buffers, Borrowing] | Stored | None


class Replies(abc.ABC):
    """The replies of one actor. Methods run in its own threads."""

    def __init__(self, parts: Runtime, interface: Interface, life: Life) -> None:
        self.parts = parts
        self.interface = interface
        self.label: str = life.label
        self.instance: Any = None
        self.running: dict[tuple[int, int], Job] = {}
        self.started = StartedCalls(parts.directory, parts.process_id)
        self._methods = {s.name.encode(): s for s in interface.methods.values()}
        self._forwards: dict[tuple[int, int], list[bytes]] = {}
        # Streams from before they are queued until they end: a credit, which comes
        # behind its call, finds the job also on its way to `running`.
        self._streams: dict[tuple[int, int], Job] = {}
        policy = life.policy
        self._snapshot_every = policy.snapshot_every if policy else 0
        self._calls_since_snapshot = 0
        self._snapshot_lent = Borrowing(parts.borrows), 0
        self._is_away = life.away

    # -- the rule ----------------------------------------------------------

    def succeed(self, job: Job, value: Any, encoded: Encoded | None = None) -> None:
        """A call has returned `value`, which may be `encoded` already."""
        if _process._was_forked:
            end_if_forked()
        if self._snapshot_every:
            problem = self._snapshot(job)
            if problem is not None:
                self._not_sent(encoded)
                self.reply_error(job, problem)
                return
        late = job.deadline is not None and perf_counter() > job.deadline
        if late and not job.flags & envelope.ONE_WAY:
            self._not_sent(encoded)
            self.reply_error(job, self._late(job))
            return
        encoded = encoded or self.encoded(job, value)
        if encoded is not None:
            self._finish(job, encoded.payload, encoded.flags, encoded.parts)

    def _not_sent(self, encoded: Encoded | None) -> None:
        if encoded is not None:
            self.parts.payloads.take_back(encoded.payload, encoded.flags)

    def _late(self, job: Job) -> errors.CallTimeout:
        """In place of a result that is not in time, perhaps what a method returned that
        saw that it was given up. Its caller may not have noticed the time yet."""
        return errors.CallTimeout(
            f"{self.name_of(job)} ended after its deadline, and its result is dropped "
            "(use .options(timeout=…) to allow more)",
            delivered=True,
        )

    def fail(self, job: Job, error: BaseException) -> None:
        """A call has ended with an exception; the rule is above."""
        if _process._was_forked:
            end_if_forked(error)
        began = job.context is not None
        if began and isinstance(error, SystemExit):
            self.leave(job, error)
            return
        if began and self._snapshot_every:
            problem = self._snapshot(job)
            if problem is not None:
                inspection.add_note(error, errors.text_of(problem))
        if began and job.context.started:
            error = errors.let_out(error)
        self.reply_error(job, error)

    def close_stream(self, job: Job, error: BaseException | None = None) -> None:
        """A generator has ended, with `error` if it raised, or is not wanted."""
        if error is None and job.cancelled:
            error = errors.Cancelled("the stream was closed")
        if error is not None:
            self.fail(job, error)
            return
        if self._snapshot_every:
            problem = self._snapshot(job)
            if problem is not None:
                self.reply_error(job, problem)
                return
        self._finish(job, b"", envelope.EMPTY | envelope.LAST, None)

    @abc.abstractmethod
    def complete(self, hook: Awaitable[Any]) -> Any:
        """Run an async hook to its end, on the actor's loop if it has one; returns its
        result. Not on that loop."""

    def alone(self) -> AbstractContextManager[None]:
        """No method changes the actor's state meanwhile, where we can see to that."""
        return nullcontext()

    @abc.abstractmethod
    def leave(self, job: Job, error: SystemExit) -> None:
        """A method wants the process to end."""

    def name_of(self, job: Job) -> str:
        """``Class.method`` of a job, for messages."""
        return f"{self.label}.{job.name.decode(errors='replace')}"

    # -- replies out -------------------------------------------------------

    def encoded(self, job: Job, value: Any) -> Encoded | None:
        """The bytes of a result for `_finish`; None if it cannot be pickled, which has
        become the call's error. In the method's thread, at once: the value may change
        later."""
        if value is None or job.flags & envelope.ONE_WAY:
            return Encoded(b"", envelope.EMPTY, None)
        parts = self.parts
        alone = (job.sender, job.call_id) not in self._forwards
        try:
            borrowing = Borrowing(parts.borrows, job.sender, alone=alone)
            data, buffers = borrowing.note(codec.encode, value)
            stays = not borrowing.laid_out and parts.results.stays(buffers, job.sender)
            if stays and borrowing.defines:  # others need the definitions, too
                borrowing = Borrowing(parts.borrows, job.sender, alone=False)
                data, buffers = borrowing.note(codec.encode, value)
            if stays:
                kept, payload, flags = parts.results.store(
                    data, buffers, borrowing, job.sender
                )
                return Encoded(payload, flags, kept)
            payload, flags = parts.payloads.pack(data, buffers, borrowing, job.sender)
        except errors.MooError as error:
            error.delivered = True  # it was only the result that could not be sent
            self.reply_error(job, error)
            return None
        except BaseException as error:
            self.reply_error(job, self._unpicklable(job, "result", value, error))
            return None
        return Encoded(payload, flags, (data, buffers, borrowing))

    def _unpicklable(
        self, job: Job, what: str, value: Any, error: BaseException
    ) -> Exception:
        if isinstance(error, MemoryError):
            return error  # pickling is all right
        kind = type(value).__qualname__
        refusal = TypeError(
            f"the {what} of {self.name_of(job)} (a {kind}) cannot be pickled: "
            f"{errors.text_of(error)}"
        )
        refusal.__cause__ = error
        return refusal

    def reply_error(self, job: Job, error: BaseException) -> None:
        """Send an error; nobody waits for one of a `tell`, so that goes to stderr."""
        if job.flags & envelope.ONE_WAY:
            complain(
                f"{self.name_of(job)} failed in a tell, for which nobody waits:", error
            )
            self._finish(job, b"", envelope.EMPTY, None)
            return
        if job.cut_off and isinstance(error, errors.Cancelled):
            error = errors.ActorUnavailable(
                f"the connection between {self.label} and its caller broke, and with "
                f"it the stream of {self.name_of(job)}; call again",
                delivered=None,
            )
        if isinstance(error, SystemExit):
            error = _defused(error, f"{self.name_of(job)}, outside of the method")
        elif job.flags & envelope.STREAM and isinstance(error, _ENDS_OF_LOOPS):
            error = _defused(error, f"{self.name_of(job)}, a generator")
        where = f"{self.label}, process {os.getpid()} on {socket.gethostname()}"
        borrowing = Borrowing(self.parts.borrows, job.sender)
        data = borrowing.note(codec.encode_error, error, where)
        flags = envelope.ERROR | (envelope.LAST if job.flags & envelope.STREAM else 0)
        payload, flags = borrowing.issue(job.sender, data, flags)
        self._finish(job, payload, flags, (data, [], borrowing))

    def _finish(self, job: Job, payload: bytes, flags: int, encoded: Any) -> None:
        if job.answered:
            return
        job.answered = True
        key = (job.sender, job.call_id)
        self.running.pop(key, None)
        if self._streams:
            self._streams.pop(key, None)
        record = envelope.pack_head(
            envelope.REPLY, flags, 0, 0, len(payload), job.call_id, 0.0
        )
        self.send_reply(job.sender, record + payload)
        if self._forwards:
            for pair in tuple(self._forwards.pop(key, ())):
                self._forward(pair, flags, encoded)

    def _forward(self, pair: bytes, flags: int, encoded: Any) -> None:
        """Send a result to a third process, too, with memory leases of its own."""
        target, token = bodies.numbers(pair, 2)
        if flags & envelope.EMPTY:
            self.parts.sender.post(target, envelope.VALUE, token, codec.encode(None)[0])
            return
        if isinstance(encoded, Stored):
            self.parts.handovers.send_stored(encoded, target, token)
            return
        data, buffers, borrowing = encoded
        try:
            payload, more = self.parts.payloads.pack(data, buffers, borrowing, target)
        except Exception as error:
            self.parts.handovers.send_error(target, token, error)
            return
        more |= flags & envelope.ERROR
        self.parts.sender.post(target, envelope.VALUE, token, payload, more)

    def send_reply(self, process_id: int, record: bytes) -> None:
        """Hand a reply to the messenger, now or with others."""
        self.parts.messenger.peer(process_id).send(record)

    # -- streams -----------------------------------------------------------

    def encoded_item(self, job: Job, item: Any) -> bytes:
        """The record of one item of a stream.

        Raises:
          TypeError: it cannot be pickled.
          MooError: its large parts cannot be sent.
        """
        pack = self.parts.payloads.pack
        try:
            borrowing = Borrowing(self.parts.borrows, job.sender)
            data, buffers = borrowing.note(codec.encode, item)
            data, flags = pack(data, buffers, borrowing, job.sender)
        except errors.MooError:
            raise
        except BaseException as error:
            raise self._unpicklable(job, "item", item, error) from error
        flags |= envelope.STREAM
        head = envelope.pack_head(
            envelope.REPLY, flags, 0, 0, len(data), job.call_id, 0.0
        )
        return head + data

    def send_encoded(self, job: Job, record: bytes) -> None:
        """Send one item of a stream, using up one credit."""
        job.credit -= 1
        self.send_reply(job.sender, record)

    # -- snapshots ---------------------------------------------------------

    def _snapshot(self, job: Job) -> BaseException | None:
        """Let the agent keep the actor's state, if it is to be restored and the call
        may have changed it. Returns the error; the actor has printed it."""
        spec = self._methods.get(job.name)
        if spec is None or spec.options.read_only:
            return None
        try:
            take = getattr(self.instance, "__snapshot__", None)
            if take is None:
                return None
            self._calls_since_snapshot += 1
            if self._calls_since_snapshot < self._snapshot_every:
                return None
            self._calls_since_snapshot = 0
            if inspect.iscoroutinefunction(take):
                self._save(self.complete(take()))
            else:
                with self.alone():
                    self._save(take())
        except BaseException as error:
            what = (
                f"{self.name_of(job)} has run, but its new state could not be saved: "
                "a restart would undo it"
            )
            inspection.add_note(error, what)
            complain(f"{what}:", error)
            return error
        return None

    def _save(self, state: Any) -> None:
        borrowing, what = Borrowing(self.parts.borrows), f"the snapshot of {self.label}"
        packed = borrowing.note(parcel.pack, state, what)
        # The actor holds the values of its latest snapshot, for any later process that
        # restores it.
        actor = every_incarnation(self.parts.actor_id)
        lent = borrowing, borrowing.lend_to(actor)
        try:
            self._hand_in(packed.fds, packed.data)
        finally:
            packed.close()
        before, self._snapshot_lent = self._snapshot_lent, lent
        before[0].recall(before[1])

    def _hand_in(self, fds: Sequence[int], data: bytes | None) -> None:
        """Return when the session's home has it, or will have it even if this process
        dies now. Not so if this host dies: on another one wait for the answer, also
        past the deadline of the call."""
        agent = self.parts.agent
        if not self._is_away:
            agent.tell(Snapshot(data), fds)
            return
        before = context.set(None)
        try:
            agent.ask(Snapshot(data), None, fds)
        finally:
            context.reset(before)


def _defused(error: BaseException, where: str) -> RuntimeError:
    """In place of exceptions that would mean something else to the caller."""
    name = type(error).__name__
    refusal = RuntimeError(f"{where}, raised {name}({errors.text_of(error)})")
    if not isinstance(error, SystemExit):
        refusal.__cause__ = error
    return refusal


def mend_streams() -> None:
    """If a method deleted ``sys.stderr``, restore it: no thread can start without."""
    if not hasattr(sys, "stderr"):
        sys.stderr = None


def end_if_forked(error: BaseException | None = None) -> None:
    """In a child that a method forked: end it where that method has ended."""
    if not _process._was_forked:
        return
    code = 0
    if isinstance(error, SystemExit):
        code = (
            error.code if isinstance(error.code, int) else int(error.code is not None)
        )
    elif error is not None:
        complain("in a child that a method forked:", error)
        code = 1
    try:
        sys.stdout.flush()
    finally:
        os._exit(code)
