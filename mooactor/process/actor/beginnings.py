# SPDX-License-Identifier: MIT
"""The beginning of a call: from the mailbox to the method and its arguments.

A call that its caller has given up does not begin, whether word of that came before it,
while it was queued, or while its arguments were unpickled. Nor does one whose deadline
has passed, or whose arguments did not arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from mooactor import errors
from mooactor.control import bodies, envelope
from mooactor.control.lifeline import Message
from mooactor.process.actor.answers import Answers
from mooactor.process.actor.mailbox import Job
from mooactor.process.actor.parts import Parts
from mooactor.process.calls import CallContext
from mooactor.process.interface import Interface, MethodSpec


class Beginnings(Answers):
    """The beginnings of one actor's calls. `prepare` runs in the actor's own thread."""

    def __init__(self, parts: Parts, interface: Interface, life: Message) -> None:
        super().__init__(parts, interface, life)
        # Cancellations that found no call, the latest. Most calls had ended; others are
        # on their way, or between the mailbox and `running`.
        self._vain: dict[tuple[int, int], None] = {}

    def prepare(
        self, job: Job
    ) -> tuple[MethodSpec, Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """The bound method and its arguments; from here on the call counts as started.

        Raises:
          BaseException: the error for the reply. All data of the call was let go of.
        """
        try:
            spec = self._methods.get(job.name)
            if spec is None:
                name = job.name.decode(errors="replace")
                raise AttributeError(f"{self.label} has no method {name!r}")
            if job.transfer is not None:
                self._check_transfer(job, spec)
            self._check_deadline(job.deadline, spec.name)
            args: tuple[Any, ...] = ()
            kwargs: dict[str, Any] = {}
            if not job.flags & envelope.EMPTY:
                args, kwargs = self._arguments_of(job)
                self._check_deadline(job.deadline, spec.name)  # it took a while
            method = getattr(self.instance, spec.name)
            # Before the last look: a cancellation that this does not see finds the
            # context, and tells the method by that.
            job.context = CallContext(
                self.parts.actor_id,
                self.label,
                job.sender,
                job.call_id,
                job.chain,
                job.deadline,
                spec.name,
            )
            self._check_wanted(job)
        except BaseException:
            job.context = None  # it has not begun
            self._let_go(job)
            raise
        self.started.note(job.sender, job.call_id)
        return spec, method, args, kwargs

    def _check_wanted(self, job: Job) -> None:
        """It is in `running`, so from here on a cancellation finds it."""
        if self._vain and (job.sender, job.call_id) in self._vain:
            job.cancelled = True
        if job.cancelled:
            raise cancelled()

    def check_turn(self, call: CallContext) -> None:
        """A call that was prepared has waited for its thread: whether it still runs.

        Raises:
          Cancelled, CallTimeout: it was given up meanwhile.
        """
        if call.cancelled:
            raise cancelled()
        self._check_deadline(call.deadline, call.method)

    def _check_deadline(self, deadline: float | None, method: str) -> None:
        if deadline is not None and perf_counter() >= deadline:
            raise errors.CallTimeout(
                f"{self.label}.{method} was still queued when its deadline passed; "
                "it did not run",
                delivered=False,
            )

    def _arguments_of(self, job: Job) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if job.flags & envelope.WHOLE:
            job.arguments = None
            return self._whole(job)
        args: tuple[Any, ...] = ()
        kwargs: dict[str, Any] = {}
        if job.arguments is not None:
            decoded = job.arguments.value()
            job.arguments = None
            args, kwargs = decoded if job.flags & envelope.KWARGS else (decoded, kwargs)
        return self._fill(job, args, kwargs) if job.needs else (args, kwargs)

    def _check_transfer(self, job: Job, spec: MethodSpec) -> None:
        """Give its place to others; refuse to run if its arguments did not arrive."""
        transfer, job.transfer = job.transfer, None
        self.parts.payloads.cancel(transfer)
        error = transfer.error if transfer is not None else None
        if transfer is not None and transfer.lost:
            raise transfer.cut_off(
                "its arguments were",
                before=f"{self.label}.{spec.name} did not run: ",
                after="; call again",
                delivered=False,
            )
        if isinstance(error, errors.ActorUnavailable):
            raise errors.ActorUnavailable(
                f"{self.label}.{spec.name} did not run, because its arguments did "
                f"not arrive: {error}; call again",
                delivered=False,
            )
        if isinstance(error, errors.MooError):
            error.delivered = False
        if error is not None:
            raise error

    def _whole(self, job: Job) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """All arguments, which came as one value."""
        ((token, future),) = job.needs
        self.parts.values.forget(token)
        decoded = future.unwrap()
        return decoded if job.flags & envelope.KWARGS else (decoded, {})

    def _fill(
        self, job: Job, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Put the values of Refs where their placeholders stand."""
        values = dict(job.needs)
        for token in values:
            self.parts.values.forget(token)

        def value(x: Any) -> Any:
            stands_in = isinstance(x, bodies.Placeholder)
            return values[x.token].unwrap() if stands_in else x

        return tuple(map(value, args)), {k: value(v) for k, v in kwargs.items()}

    def _let_go(self, job: Job) -> None:
        """It will not run: its data, arrived or under way, is not wanted."""
        if job.arguments is not None:
            job.arguments.let_go()  # the frames of the error may have them
            job.arguments = None
        if job.flags & envelope.STREAM:
            self._streams.pop((job.sender, job.call_id), None)
        self.parts.payloads.cancel(job.transfer)
        for token, _ in job.needs:
            self.parts.values.abandon(token)


def cancelled() -> errors.Cancelled:
    """The error of a call that was given up in time."""
    return errors.Cancelled("cancelled before it ran")
