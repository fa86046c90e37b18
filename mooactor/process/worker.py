# SPDX-License-Identifier: MIT
"""The callee's side of calls: taking them in, and sending replies out.

`Worker` has what all actors share. How calls run is up to its subclasses: one at a
time in `serial`, several at once in `concurrent`.
"""

from __future__ import annotations

import abc
import os
import socket
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

from mooactor import errors
from mooactor.control import codec, envelope
from mooactor.process.calls import PAIR, CallContext, Placeholder, split_tokens
from mooactor.process.interface import Interface, MethodSpec
from mooactor.process.lending import lending
from mooactor.process.lifeline import Message
from mooactor.process.mailbox import Job, Mailbox
from mooactor.process.outcome import Outcome
from mooactor.process.runtime import Runtime


class Worker(abc.ABC):
    """Takes calls in, and sends replies out. Subclasses run them."""

    def __init__(self, runtime: Runtime, interface: Interface, life: Message) -> None:
        self.runtime = runtime
        self.interface = interface
        self.label: str = life["label"]
        self.instance: Any = None
        self.mailbox = Mailbox()
        self.stopping = False
        self.running: dict[tuple[int, int], Job] = {}
        self._methods = {s.name.encode(): s for s in interface.methods.values()}
        self._forwards: dict[tuple[int, int], list[bytes]] = {}
        self._credits: dict[tuple[int, int], int] = {}
        policy = life["policy"]
        self._snapshot_every = policy.snapshot_every if policy else 0
        self._calls_since_snapshot = 0

    # -- calls in (the pump's thread) --------------------------------------

    def on_call(self, sender: int, record: envelope.Record) -> None:
        flags = record.flags
        tokens: list[tuple[int, int]] = []
        if flags & envelope.REFS:
            tokens, payload = split_tokens(memoryview(record.payload))
            record = record._replace(payload=payload)
        arguments = None
        if not flags & envelope.EMPTY:
            # The message is let go once its last view is: keep bytes, not views.
            arguments = self.runtime.reply_of(record)
        deadline = perf_counter() + record.value if record.value else None
        job = Job(
            sender,
            record.call_id,
            flags,
            record.priority,
            record.name,
            record.chain,
            arguments,
            deadline,
        )
        if self.stopping:
            self.reply_error(job, self._unavailable())
            return
        if (
            self.interface.options.overflow == "raise"
            and len(self.mailbox) >= self.interface.options.max_pending
        ):
            self.reply_error(job, self._overloaded())
            return
        if arguments is not None and flags & envelope.ATTACHED:
            job.arrival = self.runtime.receive(arguments, self.on_value, argument=True)
        for token, producer in tokens:
            outcome = self.runtime.values.expect(token, producer)
            job.needs.append((token, outcome))
            if not outcome.state:
                outcome.listen(self.on_value)
        self.mailbox.put(job)
        self.wake()

    def _unavailable(self) -> errors.MooError:
        return errors.ActorUnavailable(
            f"{self.label} is stopping and takes no more calls", delivered=False
        )

    def _overloaded(self) -> errors.MooError:
        return errors.Overloaded(
            f"{self.label} has {len(self.mailbox)} calls queued, its bound; the call "
            "was not run. Slow down, or raise max_pending",
            delivered=False,
        )

    def on_value(self) -> None:
        self.mailbox.settle()
        self.wake()

    def on_cancel(self, sender: int, call_id: int) -> None:
        job = self.mailbox.remove(sender, call_id)
        if job is not None and job.iterator is None:
            self._let_go(job)
            self.reply_error(job, errors.Cancelled("cancelled before it ran"))
            return
        if job is not None:
            self.mailbox.put_first(job)  # a stream that may go on: let it end
        job = job or self.running.get((sender, call_id))
        if job is not None:
            job.cancelled = True
            if job.context is not None:
                job.context.cancelled = True
            self.cancel_running(job)

    def on_credit(self, sender: int, call_id: int, items: int) -> None:
        job = self.running.get((sender, call_id))
        if job is None:
            # It waits in the mailbox: its first credit comes right behind it.
            key = (sender, call_id)
            self._credits[key] = self._credits.get(key, 0) + items
        else:
            job.credit += items
            self.resume(job)

    def on_stop(self, sender: int) -> None:
        self.runtime.agent.tell(op="stopping")
        self.stopping = True
        self.wake()

    def stop_now(self) -> None:
        """The session is over: what waits is refused, what runs may finish."""
        self.stopping = True
        for job in self.mailbox.drain():
            self._let_go(job)
            self.reply_error(job, self._unavailable())
        self.wake()

    def on_forward(self, sender: int, call_id: int, pair: bytes) -> bool:
        known = (sender, call_id) in self.running or any(
            job.call_id == call_id for job in self.mailbox.of_sender(sender)
        )
        if known:
            self._forwards.setdefault((sender, call_id), []).append(pair)
        return known

    def _let_go(self, job: Job) -> None:
        """It will not run: what is under way for it is not wanted."""
        self.runtime.cancel_arrival(job.arrival)
        for token, _ in job.needs:
            self.runtime.values.abandon(token)

    def has_ready(self) -> bool:
        """Whether some call could be run at once."""
        return self.mailbox.has_ready()

    def on_process_lost(self, process_id: int) -> None:
        for job in self.mailbox.of_sender(process_id):
            if job.iterator is None:
                self.mailbox.remove(job.sender, job.call_id)
                self._let_go(job)
        for key, job in list(self.running.items()):
            if key[0] == process_id:
                job.cancelled = True
                if job.context is not None:
                    job.context.cancelled = True
                self.cancel_running(job)

    def awaited_by(self, sender: int, call_id: int) -> list[tuple[str, Outcome]]:
        """What a call that runs here sleeps on, for deadlock detection."""
        job = self.running.get((sender, call_id))
        if job is None or job.context is None:
            return []
        hop = f"{self.runtime.actor_id:x} {self.label}"
        return [(hop, outcome) for outcome in list(job.context.awaits)]

    # -- for subclasses ----------------------------------------------------

    def wake(self) -> None:
        """There may be work. Called by whichever thread leads the pump."""
        self.runtime.pump.wake()

    @abc.abstractmethod
    def cancel_running(self, job: Job) -> None:
        """Its caller has given up; the flags on it say so already."""

    @abc.abstractmethod
    def resume(self, job: Job) -> None:
        """A stream has got credit."""

    @abc.abstractmethod
    def run(self) -> None:
        """Serve until the actor is to end."""

    # -- running one call --------------------------------------------------

    def prepare(
        self, job: Job
    ) -> tuple[MethodSpec, Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """The bound method and its arguments.

        Raises:
          BaseException: whatever the reply shall be instead.
        """
        spec = self._methods.get(job.name)
        if spec is None:
            name = job.name.decode(errors="replace")
            raise AttributeError(f"{self.label} has no method {name!r}")
        if job.arrival is not None:
            self._check_arrival(job, spec)
        if job.deadline is not None and perf_counter() > job.deadline:
            raise errors.CallTimeout(
                f"{self.label}.{spec.name} was still queued when its deadline passed; "
                "it did not run",
                delivered=False,
            )
        args: tuple[Any, ...] = ()
        kwargs: dict[str, Any] = {}
        if job.flags & envelope.WHOLE:
            job.arguments = None
            args, kwargs = self._whole(job)
        elif job.arguments is not None:
            decoded = job.arguments.value()
            job.arguments = None
            args, kwargs = decoded if job.flags & envelope.KWARGS else (decoded, kwargs)
        if job.needs and not job.flags & envelope.WHOLE:
            args, kwargs = self._fill(job, args, kwargs)
        job.context = CallContext(
            self.runtime.actor_id,
            self.label,
            job.sender,
            job.call_id,
            job.chain,
            job.deadline,
            spec.name,
            self.interface.serial,
        )
        return spec, getattr(self.instance, spec.name), args, kwargs

    def _check_arrival(self, job: Job, spec: MethodSpec) -> None:
        """Give its place to others; refuse to run if its arguments did not come."""
        arrival, job.arrival = job.arrival, None
        self.runtime.cancel_arrival(arrival)
        error = arrival.error if arrival is not None else None
        if isinstance(error, errors.ActorDied):
            raise errors.ActorUnavailable(
                f"{self.label}.{spec.name} did not run: the connection broke while its "
                f"arguments were under way ({error}); call again",
                delivered=False,
            )
        if isinstance(error, errors.ActorUnavailable):
            raise errors.ActorUnavailable(
                f"{self.label}.{spec.name} did not run, for its arguments did not "
                f"come: {error}",
                delivered=False,
            )
        if isinstance(error, errors.MooError):
            error.delivered = False
        if error is not None:
            raise error

    def _whole(self, job: Job) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """All arguments, which came as one value."""
        ((token, outcome),) = job.needs
        self.runtime.values.forget(token)
        args, kwargs = outcome.unwrap()
        return args, kwargs

    def _fill(
        self, job: Job, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Put the values of Refs where their placeholders stand."""
        values = dict(job.needs)
        for token in values:
            self.runtime.values.forget(token)

        def value(x: Any) -> Any:
            return values[x.token].unwrap() if isinstance(x, Placeholder) else x

        return tuple(map(value, args)), {k: value(v) for k, v in kwargs.items()}

    def reply(self, job: Job, value: Any) -> None:
        """Send a result; one that cannot be pickled becomes that call's error."""
        if value is None or job.flags & envelope.ONE_WAY:
            self._finish(job, b"", envelope.EMPTY, ())
            return
        alone = (job.sender, job.call_id) not in self._forwards
        try:
            with lending(self.runtime, job.sender, alone=alone):
                data, buffers = codec.encode(value)
            payload, flags = data, 0
            if buffers:
                payload = self.runtime.attach(data, buffers, job.sender)
                flags = envelope.ATTACHED
        except errors.MooError as error:
            error.delivered = True  # it was only the result that could not be sent
            self.reply_error(job, error)
            return
        except Exception as error:
            name = job.name.decode(errors="replace")
            self.reply_error(
                job,
                TypeError(
                    f"the result of {self.label}.{name} (a {type(value).__qualname__}) "
                    f"cannot be pickled: {error}"
                ),
            )
            return
        self._finish(job, payload, flags, (data, buffers))

    def reply_error(self, job: Job, error: BaseException) -> None:
        """Send an error; nobody waits for one of a `tell`, so that goes to stderr."""
        if job.flags & envelope.ONE_WAY:
            self._log_error(job, error)
            self._finish(job, b"", envelope.EMPTY, ())
            return
        where = f"{self.label}, process {os.getpid()} on {socket.gethostname()}"
        payload = codec.encode_error(error, where)
        flags = envelope.ERROR | (envelope.LAST if job.flags & envelope.STREAM else 0)
        self._finish(job, payload, flags, None)

    def _log_error(self, job: Job, error: BaseException) -> None:
        import traceback

        name = job.name.decode(errors="replace")
        print(f"{self.label}.{name} (told, so nobody waits):", file=sys.stderr)
        traceback.print_exception(error)

    def _finish(self, job: Job, payload: bytes, flags: int, encoded: Any) -> None:
        key = (job.sender, job.call_id)
        self.running.pop(key, None)
        if self._credits:
            self._credits.pop(key, None)
        record = envelope.pack_head(
            envelope.REPLY, flags, 0, 0, len(payload), job.call_id, 0.0
        )
        self.send_reply(job.sender, record + payload)
        if self._forwards:
            for pair in self._forwards.pop(key, ()):
                self._forward(pair, payload, flags, encoded)

    def _forward(self, pair: bytes, payload: bytes, flags: int, encoded: Any) -> None:
        """Send a result to a third process, too, with memory leases of its own."""
        target, token = PAIR.unpack(pair)
        if flags & envelope.ATTACHED:
            try:
                data, buffers = encoded
                payload = self.runtime.attach(data, buffers, target)
            except errors.MooError as error:
                payload = codec.encode_error(error, self.label)
                flags = envelope.ERROR
        elif flags & envelope.EMPTY:
            payload, flags = codec.encode(None)[0], 0
        keep = flags & (envelope.ATTACHED | envelope.ERROR)
        self.runtime.post(target, envelope.VALUE, token, payload, keep)

    def send_reply(self, process_id: int, record: bytes) -> None:
        """Hand a reply to the messenger, now or with others."""
        self.runtime.messenger.peer(process_id).send(record)

    def send_item(self, job: Job, item: Any) -> None:
        """Send one item of a stream, using up one credit."""
        job.credit -= 1
        with lending(self.runtime, job.sender):
            data, buffers = codec.encode(item)
        flags = envelope.STREAM
        if buffers:
            data = self.runtime.attach(data, buffers, job.sender)
            flags |= envelope.ATTACHED
        head = envelope.pack_head(
            envelope.REPLY, flags, 0, 0, len(data), job.call_id, 0.0
        )
        self.send_reply(job.sender, head + data)

    def end_stream(self, job: Job) -> None:
        self._finish(job, b"", envelope.EMPTY | envelope.LAST, ())

    def start_stream(self, job: Job, iterator: Any) -> None:
        """From here on `job` is a stream; credit may have come before it ran."""
        key = (job.sender, job.call_id)
        job.iterator = iterator
        job.credit += self._credits.pop(key, 0)

    def snapshot(self, spec: MethodSpec) -> None:
        """Let the agent keep the actor's state, if it is to be restored."""
        if not self._snapshot_every or spec.options.read_only:
            return
        take = getattr(self.instance, "__snapshot__", None)
        if take is None:
            return
        self._calls_since_snapshot += 1
        if self._calls_since_snapshot >= self._snapshot_every:
            self._calls_since_snapshot = 0
            data = codec.encode_in_band(take())
            self.runtime.agent.tell(op="snapshot", data=data)
