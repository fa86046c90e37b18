# SPDX-License-Identifier: MIT
"""Payloads of records: the memory attached to outgoing and incoming ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from mooactor.control import bodies, codec, envelope
from mooactor.control.links import Links
from mooactor.control.sender import Sender
from mooactor.process.objects.borrow import Borrowing, Borrows
from mooactor.process.objects.future import (
    AttachedReply,
    FailedReply,
    Reply,
    taken_over,
)
from mooactor.process.objects.holds import Claims
from mooactor.process.objects.inbound import InboundTransfers, Transfer
from mooactor.tensors.plane import DataPlane, owner_of


class Payloads:
    """Between the records of one process and its data plane. Threads: any."""

    def __init__(
        self,
        plane: DataPlane,
        links: Links,
        sender: Sender,
        borrows: Borrows,
        inbound: InboundTransfers | None,
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        """`inbound`: None if all is on this host. `later`: call in so many seconds."""
        self.plane = plane
        self.borrows = borrows
        self.inbound = inbound
        self.lent = None if inbound is None else Lent(plane, links, later)
        self._links = links
        self._sender = sender
        self._granted: set[tuple[int, int]] = set()  # (owner, receiver) that it knows

    # -- out ---------------------------------------------------------------

    def attach(
        self,
        data: bytes,
        buffers: Sequence[Any],
        process_id: int,
        *,
        wait: bool = False,
    ) -> bytes:
        """A payload with its large buffers exported to one process.

        With `wait`, for the first contact with another host, so that its failure is
        an error here. Never with `wait` in a thread that others depend on: the
        poller's, an actor's, an event loop's.

        Raises:
          OutOfMemory: nothing was exported.
          ActorUnavailable: the same; it is known that no transport leads there.
        """
        # If it dies before it has a plane, only the agent can tell: nobody hangs up.
        self._links.watch(process_id)
        descriptors = self.plane.export_all(buffers, process_id, wait=wait)
        try:
            self._have_owners_watch(descriptors, process_id)
            lent = self.lent
            if lent is not None:
                lent.note(descriptors, process_id)
            return bodies.pack_attached(descriptors, data)
        except BaseException:
            self.plane.take_back(descriptors)
            raise

    def pack(
        self,
        data: bytes,
        buffers: Sequence[Any],
        borrowing: Borrowing | None,
        process_id: int,
        *,
        wait: bool = False,
    ) -> tuple[bytes, int]:
        """A value for one process, to be sent: its large buffers attached, as `attach`
        does, and the Refs in it lent. Returns the payload and its flags."""
        flags = 0
        if buffers:
            data = self.attach(data, buffers, process_id, wait=wait)
            flags = envelope.ATTACHED
        if borrowing is None:
            return data, flags
        return borrowing.issue(process_id, data, flags)

    def take_back(self, payload: bytes | memoryview, flags: int) -> None:
        """The reverse of `pack`, of what is not sent after all."""
        if flags & envelope.BORROWS:
            _, number, lent, payload = bodies.split_borrows(payload)
            for owner, object_id in lent:
                self.borrows.give_back(owner, object_id, number)
        if flags & envelope.ATTACHED:
            self.plane.take_back(bodies.split_attached(payload)[0])

    def connection_broke(self, process_id: int, *, stood: bool) -> None:
        """Ours to that process; see `Lent.connection_broke`."""
        lent = self.lent
        if lent is not None:
            lent.connection_broke(process_id, stood=stood)

    def forget_grants(self, process_id: int) -> None:
        """A process is gone: forget its grants, as owner and as receiver."""
        lent = self.lent
        if lent is not None:
            lent.process_lost(process_id)
        if self._granted:
            self._granted = {pair for pair in self._granted if process_id not in pair}

    def _have_owners_watch(self, descriptors: list[bytes], process_id: int) -> None:
        """Received memory is granted by its owner, in C: this tells the owner the
        receiver."""
        here = {self._links.process_id, process_id}
        for owner in set(map(owner_of, descriptors)) - here:
            if (owner, process_id) not in self._granted:
                self._granted.add((owner, process_id))
                self._sender.post(owner, envelope.WATCH, process_id)

    # -- in ----------------------------------------------------------------

    def result_of(self, record: envelope.Record) -> Reply:
        """The payload of a REPLY or VALUE, its attached memory taken over."""
        reply = self.reply_of(record)
        error = taken_over(reply)
        if error is not None:
            return reply.replaced_by(codec.encode_error(error, "the receiver"))
        return reply

    def reply_of(self, record: envelope.Record) -> Reply:
        """A record's payload, ready to be decoded or dropped.

        Raises:
          MalformedMessage: its attachments do not fit.
        """
        kept: Reply | None = record.memo.get("reply")
        if kept is not None:
            return kept  # handling the record was cut short, and begins again
        descriptors: list[bytes] = []
        payload: Any = record.payload
        claims = None
        if record.flags & envelope.BORROWS:
            lender, number, borrows, payload = bodies.split_borrows(payload)
            stays = record.kind == envelope.REPLY and record.flags & envelope.STAYS
            if stays and not borrows:
                raise bodies.MalformedMessage("a result that stays nowhere")
            made = Claims(self.borrows, lender, number, borrows, stays=bool(stays))
            claims = record.memo.setdefault("claims", made).arrive()
        if record.flags & envelope.ATTACHED:
            descriptors, payload = bodies.split_attached(payload)
        elif record.flags & envelope.EMPTY:
            payload = None
        failed = record.kind in (envelope.REPLY, envelope.VALUE) and bool(
            record.flags & envelope.ERROR
        )
        if failed and not descriptors:
            reply: Reply = FailedReply(payload, [], True, self.plane, claims)
        else:
            kind = AttachedReply if descriptors else Reply
            reply = kind(payload, [], failed, self.plane, claims)
        if "reply" not in record.memo:
            # With no call between the two: dropped, it would give its memory back.
            record.memo["reply"] = reply
            reply.descriptors = descriptors
        first: Reply = record.memo["reply"]
        return first

    def receive(
        self,
        reply: Reply,
        then: Callable[[], None],
        memo: dict[str, Any] | None = None,
        *,
        argument: bool = False,
    ) -> Transfer | None:
        """Have attached data fetched if it is on another host, and call `then` in the
        poller's thread when it is there; see `InboundTransfers.begin`.

        None: there is nothing to wait for, and `then` will not be called. If this is
        cut short, the next call with the same `memo`, a record's, goes on.
        """
        begun = memo is not None and "transfer" in memo
        if self.inbound is None or not (begun or reply.is_remote()):
            return None
        transfer = self.inbound.begin(reply, then, argument=argument, memo=memo)
        self._sender.arm()
        return transfer

    def soon(self, action: Callable[[], None]) -> None:
        """Call `action` in a moment, when news of a death would have arrived."""
        assert self.inbound is not None
        self.inbound.soon(action)
        self._sender.arm()

    def cancel(self, transfer: Transfer | None) -> None:
        """The data is not wanted any more, or was used."""
        if transfer is not None and self.inbound is not None:
            self.inbound.cancel(transfer)
            self._sender.arm()

    def close(self) -> None:
        """Let go of the plane."""
        self.inbound = self.lent = None
        del self.plane


CLAIMED_S = 30.0  # longer than Refs survive a break, see `audit`
_LOOKED_AT = 2  # for each that is noted: so most of those noted are in use


class Lent:
    """Memory that was lent to processes of other hosts, in records that may be lost.

    A lease ends when its receiver gives it back, or dies. A receiver that never got the
    record does neither. So the sender notes what it attaches to records for other
    hosts, until its receiver has asked for the data. Leases of data that it has
    not asked for `CLAIMED_S` after a break of the connection are taken back. If the
    data has come after all, and is still unread, it counts as cut off.

    Threads: any, for `note` and `process_lost`; the housekeeper's for
    `connection_broke`.
    """

    def __init__(
        self,
        plane: DataPlane,
        links: Links,
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        """`later`: call in so many seconds."""
        self._plane = plane
        self._links = links
        self._later = later
        self._of: dict[int, deque[bytes]] = {}  # by receiver

    def __len__(self) -> int:
        return sum(map(len, list(self._of.values())))

    def note(self, descriptors: Iterable[bytes], receiver: int) -> None:
        """They are about to be sent."""
        if self._links.messenger.is_on_this_host(receiver):
            return
        noted = self._of.get(receiver)
        if noted is None:
            noted = self._of.setdefault(receiver, deque())
        for descriptor in descriptors:
            noted.append(descriptor)
            self._look(noted)
        # Looked at after it was noted: a later death has a notice of its own.
        if self._links.is_gone(receiver):
            self._of.pop(receiver, None)

    def _look(self, noted: deque[bytes]) -> None:
        """Drop the oldest ones if they are in use, else look at them again later."""
        for _ in range(_LOOKED_AT):
            try:
                oldest = noted[0]
                if self._plane.is_unclaimed(oldest):
                    noted.rotate(-1)
                else:
                    noted.remove(oldest)
            except (IndexError, ValueError):
                return  # another thread was quicker

    def connection_broke(self, receiver: int, *, stood: bool) -> None:
        """Ours to that process. Not `stood`: it never came up, so nothing was sent."""
        noted = self._of.get(receiver)
        if noted is None:
            return
        take_back = partial(self._plane.take_back, list(noted))
        if stood:
            self._later(CLAIMED_S, take_back)
        else:
            take_back()

    def process_lost(self, process_id: int) -> None:
        """It is dead, and its leases have ended."""
        self._of.pop(process_id, None)
