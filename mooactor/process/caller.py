# SPDX-License-Identifier: MIT
"""The caller's side of calls: sending them, and their ends.

A signal handler, a finalizer or another thread may start, end or cancel calls between
any two lines here. The following holds all the same:

1. **A call is pending until it has ended.** It is in ``_pending`` from before its
   record is sent until its future is done. So a reply, a death, a deadline and the end
   of the session each find every call that they must end.
2. **A call counts until its reply is settled.** Its id is in ``link.calls`` from before
   its record is sent until its reply is here, or is known not to come. A call that was
   cancelled, or is past its deadline, still counts: the actor may be at it.
   ``max_pending`` bounds this count.
3. **Starting a call raises only errors of its arguments**, and then nothing was sent
   and nothing lent. An error of the callee (dead, unreachable, overloaded, restarting)
   ends the future instead.
4. **A call ends once**: of a reply, a failure, a cancellation and a deadline that race,
   the first decides. See `Future`.
5. **A call is sent once.** With ``retries=`` it is sent again, under a new id, but only
   when the process that had it is known to be dead, or a connection with it broke.
6. **A deadline is the call's own**: the housekeeper ends the call then, also if nobody
   waits for it.
7. **The callee is told first** of a cancellation or a deadline. Calls of whoever learns
   of that end here come after it, and find that a queued call did not run; so does the
   call itself, if it leaves later. Between processes of one host a queued call whose
   deadline has passed does not run, told or not.
8. **A deadline covers all attempts**, and the wait for room in the mailbox.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mooactor import errors
from mooactor.control import bodies, envelope
from mooactor.control.links import Link
from mooactor.process.admission import Admission, remaining
from mooactor.process.arguments import CalleeGone
from mooactor.process.calls import (
    BLOCKING,
    CallContext,
    Form,
    Repeatable,
    context,
)
from mooactor.process.deadlock import refuse_cycle
from mooactor.process.housekeeper import Deadlines
from mooactor.process.interface import MethodSpec
from mooactor.process.losses import Losses, forget, say_refused
from mooactor.process.objects.future import Future, Reply
from mooactor.process.objects.results import let_home_go
from mooactor.process.objects.table import Stored
from mooactor.process.pending import PendingReplies

if TYPE_CHECKING:
    from mooactor.process.runtime import Runtime


class Caller:
    """The calls of one process that are under way."""

    def __init__(self, parts: Runtime) -> None:
        self._links = parts.links
        self._sender = parts.sender
        self._poller = parts.poller
        self._payloads = parts.payloads
        self._results = parts.results
        self._arguments = parts.arguments
        self._session_ended = parts.agent.session_ended
        self._pending: dict[int, Future] = {}
        self.admission = Admission(parts, self._pending)
        self._ids = itertools.count(1)
        self._replies = PendingReplies(parts.payloads, self._deliver)
        housekeeper = parts.housekeeper
        self._deadlines = Deadlines(self._pending, housekeeper, housekeeper.clock)
        self.losses = Losses(parts, self._pending, self._replies, self.start)

    def __len__(self) -> int:
        return len(self._pending)

    def outstanding(self) -> list[Future]:
        """Calls and tells that were sent and have not ended, in the order sent."""
        return [o for o in list(self._pending.values()) if not o.state]

    def start(
        self,
        link: Link,
        future: Future,
        form: Form,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        prepared: Stored | None = None,
    ) -> None:
        """Send a call whose result will be `future`.

        `prepared` holds the arguments if they are encoded already, for a group's calls.

        Raises:
          TypeError: the arguments cannot be pickled.
          OutOfMemory: there is no room for them.
        """
        spec, options, flags, waits = form
        caller = context.get()
        timeout = options.timeout
        if caller is not None:
            timeout = remaining(timeout, caller.deadline)
        if future.deadline is not None:  # it is made again
            timeout = remaining(timeout, future.deadline)
        try:
            chain = b""
            if caller is not None and waits:
                chain = self._chain(link, spec, caller)
            if link.cause is not None:
                raise link.gone()
            if link.peer is None:
                self._links.refuse_lost_directory(link)
            if len(link.calls) >= link.limit and future.request is None:
                timeout = self.admission.wait(link, timeout)
        except errors.MooError as error:
            self._refuse(link, future, error)
            return
        rounds, resending = link.rounds, link.resending  # in this order
        if resending is not None and future.request is None:
            resending.wait()
        target, gone, payload = link.process_id, False, b""
        try:
            if not args and not kwargs:
                flags |= envelope.EMPTY
            elif prepared is not None and prepared.serves(target):
                payload, more = self._arguments.prepared(prepared, link)
                flags |= more | envelope.KWARGS
            else:
                payload, flags = self._arguments.encode(
                    link, args, kwargs, flags, waits, future
                )
        except errors.ActorUnavailable as error:
            self._refuse(link, future, error)
            return
        except CalleeGone:
            gone = True
        call_id = 0
        try:
            call_id = next(self._ids)
            if options.retries and future.request is None:
                future.request = Repeatable(form, args, kwargs, options.retries)
            name, hops, left = spec.wire, len(chain) >> 3, 0.0
            if timeout is not None:
                deadline, packed, left = envelope.pack_deadline(timeout)
                chain += packed
            body = name + chain + payload if chain else name + payload
            record = envelope.pack_head(
                envelope.CALL,
                flags,
                options.priority,
                hops,
                len(body),
                call_id,
                left,
            )
            future.call_id = call_id
            future.link = link
            link.calls.add(call_id)  # first: who ends a pending call takes it out
            self._pending[call_id] = future
            if timeout is not None:
                self._deadlines.limit(future, deadline)
            if future.request is not None and future.is_decided():
                self._tell_callee(future)  # who gave it up did not find it here
            if gone:
                self._await_notice(link, future, call_id, target)
            elif not self._send(
                link,
                target,
                rounds,
                future,
                call_id,
                record + body,
                waits == BLOCKING,
            ):
                self._arguments.take_back(payload, flags)
                self._start_over(link, future, call_id, form, args, kwargs, prepared)
        except BaseException:
            self._pending.pop(call_id, None)
            link.calls.discard(call_id)
            raise

    def _refuse(self, link: Link, future: Future, error: errors.MooError) -> None:
        """It is not sent, and ends with this error."""
        future.link = link
        future.set_error(error)
        say_refused(future, link, error)

    def _chain(self, link: Link, spec: MethodSpec, caller: CallContext) -> bytes:
        refuse_cycle(link, spec, caller)
        return bodies.pack_numbers(*caller.chain[-63:], caller.chain_entry)

    def _send(
        self,
        link: Link,
        target: int,
        rounds: int,
        future: Future,
        call_id: int,
        record: bytes,
        blocking: bool,
    ) -> bool:
        """False: nothing was sent, because the link leads to another process than
        `target`, or calls were sent again since `rounds`."""
        peer = link.peer
        if peer is None:
            if link.cause is not None:
                self.losses.end_late(link, future, call_id, delivered=False)
                return True
            peer = self._links.peer_of(link)
        if link.process_id != target or link.rounds != rounds:
            return False
        if blocking or len(link.calls) == 1:
            peer.send(record)
        elif peer.queue(record):
            self._sender.dirty.add(peer)
            self._sender.arm()
        if link.peer is not peer:
            self._sent_too_late(link, future, call_id, delivered=None)
        return True

    def _start_over(
        self,
        link: Link,
        future: Future,
        call_id: int,
        form: Form,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        prepared: Stored | None,
    ) -> None:
        """It was made for a process that has been replaced meanwhile, or before other
        calls were made again. If whoever did that saw it, it has ended it or made it
        again."""
        resending = link.resending
        if resending is not None:
            resending.wait()
        if self._pending.pop(call_id, None) is future:
            link.calls.discard(call_id)
            self.start(link, future, form, args, kwargs, prepared)

    def _await_notice(
        self, link: Link, future: Future, call_id: int, dead: int
    ) -> None:
        """It is not sent, because its process is dead. The notice of that ends it or
        has it made again, as it does with calls that were sent just before."""
        if link.cause is not None or link.process_id != dead:
            self._sent_too_late(link, future, call_id, delivered=False)

    def _sent_too_late(
        self, link: Link, future: Future, call_id: int, delivered: bool | None
    ) -> None:
        """The actor died while we sent, and the notice may not have seen the call."""
        over = link.over  # read first: if it is not, calls are looked for later
        resending = link.resending
        if resending is not None:
            resending.wait()  # after that it has seen the call, or never will
        if link.cause is not None:
            if over and link.resending is None:
                delivered = False  # it was sent to a dead process, or has ended
            if over or delivered is False:
                self.losses.end_late(link, future, call_id, delivered)
        elif call_id in self._pending and future.request is not None:
            forget(self._pending, call_id, link)
            future.request = future.request.lost(delivered)
            self.losses.send_again(link, future)
        elif call_id in self._pending:
            error = errors.ActorUnavailable(
                f"{link.label} died just now and is being restarted; call again",
                delivered=False,
            )
            self._refuse(link, future, error)
            forget(self._pending, call_id, link)

    # -- cancellation ------------------------------------------------------

    def cancel(self, future: Future) -> bool:
        """Give a call up: its future is `Cancelled` now, the callee is told."""
        return self.abandon(
            future, errors.Cancelled("the call was cancelled by its caller")
        )

    def abandon(self, future: Future, error: BaseException) -> bool:
        """End a call with an error, and tell the callee that nobody wants its result
        any more. Its reply still comes, and settles the count of outstanding calls.
        False: it had ended before."""
        first = future.set_error(error, self._tell_callee)
        self._poller.wake()
        return first

    def _tell_callee(self, future: Future) -> None:
        link = future.link
        if link is not None and future.call_id in self._pending:
            self._replies.cancel(future.call_id)
            self._sender.post(link.process_id, envelope.CANCEL, future.call_id)

    # -- replies -----------------------------------------------------------

    def on_reply(self, record: envelope.Record) -> None:
        """A result, a stream item or an error. In the poller's thread."""
        call_id, flags = record.call_id, record.flags
        if self._payloads.inbound is not None and call_id in self._pending:
            if flags & envelope.STAYS and self._stays(record):
                return
            if self._replies.takes(record):
                return
        if flags & envelope.STREAM:
            channel = self._pending.get(call_id)
            self._payloads.reply_of(record)
            if channel is not None:
                item = self._payloads.result_of(record)
                once = record.memo.setdefault("item", iter((item,)))
                channel.on_item(once)  # type: ignore[attr-defined]
            return
        future = self._pending.get(call_id)
        if future is None:
            # Late: its attached memory is given back.
            self._payloads.reply_of(record)
            return
        if flags & envelope.EMPTY:
            future.set_value(None)
        else:
            reply = self._payloads.result_of(record)
            let_home_go(reply)
            future.set_raw(reply)
        forget(self._pending, call_id, future.link)

    def _stays(self, record: envelope.Record) -> bool:
        """Whether a call has ended, and its result stays where it is."""
        future = self._pending.get(record.call_id)
        if future is None or not self._results.takes(record, future):
            return False
        forget(self._pending, record.call_id, future.link)
        return True

    def _deliver(
        self,
        call_id: int,
        flags: int,
        reply: Reply | None,
        error: BaseException | None,
        once: Iterator[Any],
    ) -> None:
        """As `on_reply`, once the data of a pending reply is here."""
        if flags & envelope.STREAM:
            channel = self._pending.get(call_id)
            if channel is not None:
                channel.on_item(once)  # type: ignore[attr-defined]
            return
        future = self._pending.get(call_id)
        if future is None:
            return
        if error is not None:
            done = future.set_error(error)
        else:
            done = future.set_value(None) if reply is None else future.set_raw(reply)
        forget(self._pending, call_id, future.link)
        if done:
            self._poller.wake()

    def mark(self) -> int:
        """A number that is higher than the id of every call so far, and lower than
        those of later ones."""
        return next(self._ids)

    def give_up(self, futures: list[Future]) -> None:
        """Forget the tells among these: their loss is reported."""
        for future in futures:
            if future.told:
                future.set_error(self._session_ended())
                forget(self._pending, future.call_id, future.link)

    def close_streams(self) -> None:
        """The session ends: consumers are told so, and producers stop."""
        for future in list(self._pending.values()):
            is_stream = hasattr(future, "on_item")
            if is_stream:
                self.abandon(future, self._session_ended())

    def close(self) -> None:
        """Nothing will arrive any more: pending calls fail."""
        for future in list(self._pending.values()):
            future.hear()  # the program has ended the session, or is told that
            future.set_error(self._session_ended())
        self._pending.clear()
