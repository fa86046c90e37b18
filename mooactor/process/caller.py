# SPDX-License-Identifier: MIT
"""The caller's side of calls: sending them, and what becomes of each."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from mooactor import errors
from mooactor.control import codec, envelope
from mooactor.process.calls import CallOptions, Request, context, pack_tokens
from mooactor.process.late import LateReplies
from mooactor.process.lending import lending
from mooactor.process.links import Link
from mooactor.process.objects import Stored
from mooactor.process.outcome import Outcome, Reply

if TYPE_CHECKING:
    from mooactor.process.runtime import Runtime


class Caller:
    """The calls of one process that are under way."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._pending: dict[int, Outcome] = {}
        self._ids = itertools.count(1)
        self._late = LateReplies(runtime, self._deliver)

    def __len__(self) -> int:
        return len(self._pending)

    def start(
        self,
        link: Link,
        outcome: Outcome,
        name: bytes,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        flags: int,
        options: CallOptions,
        blocking: bool,
        prepared: Stored | None = None,
        awaited: bool = False,
    ) -> None:
        """Send a call whose result will be `outcome`.

        With `blocking` the caller is about to wait for it: the chain of waiting
        actors travels along, and the message leaves at once; the chain also with
        `awaited`. `prepared` holds arguments encoded already, for calls of a group.
        """
        if link.cause is not None:
            raise link.gone()
        if link.outstanding >= link.limit:
            self._wait_for_room(link, options)
        caller = context.get()
        chain = b""
        timeout = options.timeout
        if caller is not None:
            timeout = _remaining(timeout, caller.deadline)
            if awaited or (blocking and caller.serial):
                self._runtime.deadlocks.refuse_cycle(link, caller)
                chain = envelope.pack_chain((*caller.chain[-63:], caller.actor_id))
        if not args and not kwargs:
            payload = b""
            flags |= envelope.EMPTY
        elif prepared is not None:
            payload, more = self._prepared(prepared, link)
            flags |= more
        else:
            again = outcome.request is not None
            payload, flags = self._encode_arguments(link, args, kwargs, flags, again)
        call_id = next(self._ids)
        outcome.call_id = call_id
        outcome.link = link
        if options.retries and outcome.request is None:
            outcome.request = Request(
                name, args, kwargs, flags, options, options.retries
            )
        body = name + chain + payload if chain else name + payload
        record = envelope.pack_head(
            envelope.CALL,
            flags,
            options.priority,
            len(chain) >> 3,
            len(body),
            call_id,
            timeout or 0.0,
        )
        self._pending[call_id] = outcome
        link.outstanding += 1
        peer = link.peer
        if peer is None:
            if link.cause is not None:
                self.fail_all(link, lambda: link.gone(delivered=False))
                return
            peer = self._runtime.peer_of(link)
        if blocking or link.outstanding == 1:
            self._runtime.pump.sent_at = perf_counter()
            peer.send(record + body)
        elif peer.queue(record + body):
            self._runtime.dirty.add(peer)
            self._runtime.pump.arm()
        if link.peer is not peer:
            self._sent_too_late(link, outcome, call_id)

    def _sent_too_late(self, link: Link, outcome: Outcome, call_id: int) -> None:
        """The actor died while we sent, and the notice may not have seen the call."""
        if link.cause is not None:
            self.fail_all(link, lambda: link.gone(delivered=None))
        elif self._pending.pop(call_id, None) is not None:
            link.outstanding = max(0, link.outstanding - 1)
            outcome.set_error(
                errors.ActorUnavailable(
                    f"{link.label} died just now and is being restarted; call again",
                    delivered=False,
                )
            )

    def _wait_for_room(self, link: Link, options: CallOptions) -> None:
        if link.overflow == "raise" or asyncio._get_running_loop() is not None:
            raise errors.Overloaded(
                f"{link.label} has {link.outstanding} calls outstanding from here, its "
                "bound (max_pending); wait for some of them first",
                delivered=False,
            )
        self._runtime.flush()
        deadline = None if options.timeout is None else perf_counter() + options.timeout
        roomy = self._runtime.pump.wait(
            lambda: link.outstanding < link.limit or link.cause is not None, deadline
        )
        if not roomy:
            raise errors.CallTimeout(
                f"no room in the mailbox of {link.label} within {options.timeout} s",
                delivered=False,
            )
        if link.cause is not None:
            raise link.gone()

    def _encode_arguments(
        self,
        link: Link,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        flags: int,
        again: bool,
    ) -> tuple[bytes, int]:
        tokens: list[tuple[int, int]] = []
        if any(isinstance(arg, Outcome) for arg in args):
            args = tuple(self._runtime.values.placed(arg, link, tokens) for arg in args)
        if kwargs:
            kwargs = {
                k: self._runtime.values.placed(v, link, tokens)
                for k, v in kwargs.items()
            }
        with lending(self._runtime, link.process_id):
            try:
                if kwargs:
                    data, buffers = codec.encode((args, kwargs))
                    flags |= envelope.KWARGS
                else:
                    data, buffers = codec.encode_args(args)
            except errors.MooError:
                raise
            except Exception as error:
                raise _unpicklable(link.label, args, kwargs, error) from error
        if buffers:
            data = self._attached(link, data, buffers, again)
            flags |= envelope.ATTACHED
        if tokens:
            data = pack_tokens(tokens, data)
            flags |= envelope.REFS
        return data, flags

    def _attached(
        self, link: Link, data: bytes, buffers: codec.Buffers, again: bool
    ) -> bytes:
        # Wait for contact where nobody but this thread's own program depends on it: not
        # in an actor, in an event loop, or where the pump sends a call again.
        wait = (
            not again and context.get() is None and asyncio._get_running_loop() is None
        )
        try:
            return self._runtime.attach(data, buffers, link.process_id, wait=wait)
        except errors.ActorUnavailable as error:
            raise errors.ActorUnavailable(
                f"the call to {link.label} was not made: {error}", delivered=False
            ) from None

    def _prepared(self, prepared: Stored, link: Link) -> tuple[bytes, int]:
        spread, target = self._runtime.spread, link.process_id
        if prepared.is_large and spread.host_of(target) is not None:
            token = secrets.randbits(63)
            spread.send(prepared, target, token)
            tokens = pack_tokens([(token, self._runtime.process_id)], b"")
            return tokens, envelope.REFS | envelope.WHOLE
        payload, attached = prepared.payload_for(target)
        return payload, envelope.KWARGS | (envelope.ATTACHED if attached else 0)

    def prepare(
        self, label: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Stored | None:
        """Encode the arguments of a call to several actors once; None if each call
        has to encode them for itself, because there are Refs among them."""
        if any(isinstance(arg, Outcome) for arg in (*args, *kwargs.values())):
            return None
        try:
            data, buffers = codec.encode((args, kwargs))
        except Exception as error:
            raise _unpicklable(label, args, kwargs, error) from error
        return self._runtime.store(data, buffers)

    def cancel(self, outcome: Outcome) -> bool:
        """Give a call up: its outcome is `Cancelled` now, the callee is told."""
        error = errors.Cancelled("the call was cancelled by its caller")
        if not outcome.set_error(error):
            return False
        self.abandon(outcome)
        return True

    def abandon(self, outcome: Outcome) -> None:
        """Tell the callee that nobody wants a call's result any more. Its reply still
        comes, and settles the count of outstanding calls."""
        link = outcome.link
        if link is not None and outcome.call_id in self._pending:
            self._late.cancel(outcome.call_id)
            self._runtime.post(link.process_id, envelope.CANCEL, outcome.call_id)

    def on_reply(self, record: envelope.Record) -> None:
        call_id, flags = record.call_id, record.flags
        if (
            self._runtime.arrivals is not None
            and call_id in self._pending
            and self._late.takes(record)
        ):
            return
        if flags & envelope.STREAM:
            channel = self._pending.get(call_id)
            if channel is not None:
                reply = self._runtime.result_of(record)
                channel.on_item(reply)  # type: ignore[attr-defined]
            else:
                self._runtime.reply_of(record)
            return
        outcome = self._pending.pop(call_id, None)
        if outcome is None:
            self._runtime.reply_of(
                record
            )  # late: what is attached gives its memory back
            return
        link = outcome.link
        link.outstanding -= 1
        outcome.link = None
        if flags & envelope.EMPTY:
            done = outcome.set_value(None)
        else:
            done = outcome.set_raw(self._runtime.result_of(record))
        if done:
            self._runtime.pump.wake()

    def _deliver(
        self, call_id: int, flags: int, reply: Reply | None, error: BaseException | None
    ) -> None:
        """As `on_reply`, for what was late."""
        if flags & envelope.STREAM:
            channel = self._pending.get(call_id)
            if channel is not None:
                channel.on_item(reply)  # type: ignore[attr-defined]
            return
        outcome = self._pending.pop(call_id, None)
        if outcome is None:
            return
        link, outcome.link = outcome.link, None
        if link is not None:
            link.outstanding -= 1
        if error is not None:
            done = outcome.set_error(error)
        else:
            done = outcome.set_value(None) if reply is None else outcome.set_raw(reply)
        if done:
            self._runtime.pump.wake()

    def _outcomes_of(self, link: Link) -> list[Outcome]:
        lost = [o for o in list(self._pending.values()) if o.link is link]
        return lost + self._runtime.values.expected_of(link)

    def fail_all(self, link: Link, error: Callable[[], errors.MooError]) -> None:
        for outcome in self._outcomes_of(link):
            self._pending.pop(outcome.call_id, None)
            outcome.link = None
            why = error()
            if self._late.drop(outcome.call_id):
                why.delivered = True  # it was its result that did not get here
            outcome.set_error(why)
        link.outstanding = 0

    def retry_or_fail(self, link: Link, cause: errors.Cause) -> None:
        for outcome in self._outcomes_of(link):
            self._pending.pop(outcome.call_id, None)
            link.outstanding = max(0, link.outstanding - 1)
            delivered = True if self._late.drop(outcome.call_id) else None
            request = outcome.request
            if request is None or request.attempts_left < 1:
                outcome.link = None
                outcome.set_error(link.restarted(cause, delivered))
                continue
            left = request.attempts_left - 1
            outcome.request = request._replace(attempts_left=left)
            self._send_again(link, outcome)
        link.outstanding = max(0, link.outstanding)

    def _send_again(self, link: Link, outcome: Outcome) -> None:
        request = outcome.request
        keep = envelope.STREAM | envelope.ONE_WAY
        try:
            self.start(
                link,
                outcome,
                request.name,
                request.args,
                request.kwargs,
                request.flags & keep,
                request.options,
                blocking=False,
            )
        except BaseException as error:
            outcome.set_error(error)

    def close(self) -> None:
        """Nothing will come any more: what is pending fails."""
        for outcome in list(self._pending.values()):
            outcome.set_error(errors.ActorUnavailable("the session has ended"))
        self._pending.clear()


def _unpicklable(
    label: str, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
) -> TypeError:
    where = codec.find_unpicklable(args, kwargs)
    return TypeError(f"{where} of a call to {label} cannot be pickled: {error}")


def _remaining(timeout: float | None, deadline: float | None) -> float | None:
    if deadline is None:
        return timeout
    left = max(0.001, deadline - perf_counter())
    return left if timeout is None else min(timeout, left)
