# SPDX-License-Identifier: MIT
"""Pending replies: those to this process's calls whose data is still under way.

The records of one call are delivered in the order in which they came: an item of a
stream waits for the data of those before it. Other calls do not wait for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from mooactor import errors
from mooactor.control import codec, envelope
from mooactor.process.objects.future import Reply, taken_over
from mooactor.process.objects.inbound import first_of, take_out
from mooactor.process.objects.results import let_home_go

if TYPE_CHECKING:
    from mooactor.process.objects.inbound import Transfer
    from mooactor.process.objects.payloads import Payloads


#: Hands a reply on once it is whole, or has failed: the call, the flags, the reply, its
#: error, and an iterator that holds the reply, if it is an item, until it is taken. It
#: comes again if that was cut short.
Deliver = Callable[
    [int, int, Reply | None, BaseException | None, Iterator[Reply | None]], None
]


class _PendingReply:
    """One record. `asked`: its data was lost, and it waits for news of a death."""

    __slots__ = ("flags", "reply", "transfer", "asked", "settled", "once", "handed_on")

    def __init__(self, flags: int, reply: Reply | None) -> None:
        self.flags = flags
        self.reply = reply
        self.transfer: Transfer | None = None
        self.asked = False
        self.settled = False
        self.once: Iterator[Reply | None] | None = None  # once it is handed on
        self.handed_on = False

    @property
    def lost(self) -> bool:
        """Whether its sender died or was cut off, so that its data cannot come."""
        return self.transfer is not None and self.transfer.lost

    @property
    def cancelled(self) -> bool:
        error = None if self.transfer is None else self.transfer.error
        return isinstance(error, errors.Cancelled)


class PendingReplies:
    """By call, in order. Methods run in the poller's thread; `cancel` in any."""

    def __init__(self, payloads: Payloads, deliver: Deliver) -> None:
        self._payloads = payloads
        self._deliver = deliver
        self._calls: dict[int, deque[_PendingReply]] = {}

    def __contains__(self, call_id: int) -> bool:
        return bool(self._calls.get(call_id))

    def takes(self, record: envelope.Record) -> bool:
        """Whether this record is handled here: its data, or that of one before it, is
        under way."""
        call_id, flags = record.call_id, record.flags
        queue = self._calls.get(call_id)
        if not (queue or flags & envelope.ATTACHED):
            self._forget_if_last(call_id, flags)
            return False
        memo = record.memo  # in case that this is cut short, and comes again
        if "pending" not in memo:
            reply = None if flags & envelope.EMPTY else self._payloads.reply_of(record)
            memo.setdefault("pending", _PendingReply(flags, reply))
        pending: _PendingReply = memo["pending"]
        if pending.reply is not None and pending.transfer is None:
            then = partial(self._settle, call_id)
            pending.transfer = self._payloads.receive(pending.reply, then, memo)
        if not pending.handed_on:
            queue = self._calls.setdefault(call_id, deque())
            if pending not in queue:
                queue.append(pending)
        self._settle(call_id)
        return True

    def is_last_here(self, call_id: int) -> bool:
        """Whether the last record of a call has come, and only data is under way."""
        queue = self._calls.get(call_id)
        return bool(queue and not queue[-1].flags & envelope.STREAM)

    def cancel(self, call_id: int) -> None:
        """Nobody wants them; arrived records are still delivered, without their
        data."""
        for pending in list(self._calls.get(call_id, ())):
            self._payloads.cancel(pending.transfer)

    def drop(self, call_id: int) -> bool:
        """Forget them: the call has ended otherwise. Whether there were any."""
        queue = self._calls.pop(call_id, None)
        for pending in queue or ():
            self._payloads.cancel(pending.transfer)
        return bool(queue)

    def _settle(self, call_id: int) -> None:
        """Hand on those that have come, in order. It may run within itself, and beside
        itself; see `first_of`."""
        queue = self._calls.get(call_id) or deque()
        for one in list(queue):  # at the same time for all, in any state
            if one.lost and not one.asked:
                one.asked = True
                self._payloads.soon(partial(self._conclude, call_id, one))
        while (pending := first_of(queue)) is not None:
            if pending.transfer is not None and not pending.transfer.done:
                return
            if pending.lost and not pending.settled:
                return
            if pending is not first_of(queue):
                continue
            self._hand_on(call_id, pending)
            take_out(queue, pending)
            self._forget_if_last(call_id, pending.flags)
            if pending.cancelled and not queue:
                self._calls.pop(call_id, None)  # no last one will come here

    def _forget_if_last(self, call_id: int, flags: int) -> None:
        if not flags & envelope.STREAM:
            self._calls.pop(call_id, None)

    def _conclude(self, call_id: int, pending: _PendingReply) -> None:
        """No death was told of: it was the connection."""
        pending.settled = True
        self._settle(call_id)

    def _hand_on(self, call_id: int, pending: _PendingReply) -> None:
        if pending.handed_on:
            return
        reply, transfer = pending.reply, pending.transfer
        error = None if transfer is None else transfer.error
        if transfer is not None and transfer.lost:
            error = transfer.cut_off(
                "its result was", before="the call has run, but ", delivered=True
            )
        elif isinstance(error, errors.ActorUnavailable):
            error = errors.ActorUnavailable(
                f"the call has run, but its result did not arrive: {error}",
                delivered=True,
            )
        if reply is not None and error is None:
            error = taken_over(reply)
        if pending.flags & envelope.STREAM:
            if isinstance(error, errors.Cancelled):
                return
            if error is not None and reply is not None:
                reply = reply.replaced_by(codec.encode_error(error, "the receiver"))
                error = None
        if reply is not None:
            let_home_go(reply)
        pending.once = pending.once or iter((reply,))
        self._deliver(call_id, pending.flags, reply, error, pending.once)
        pending.handed_on = True
