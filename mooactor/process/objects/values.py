# SPDX-License-Identifier: MIT
"""The way of a Ref's value to a third process: directly from the process that has it.

A Ref among the arguments of a call becomes a placeholder with a random *token*; its
value is sent to the callee as a VALUE record with that token: by this process if the
value is here, by its producer (FORWARD) if it is still to come, by its owner (FETCH)
if it was borrowed. The callee runs the call once the values of all tokens are there.

A value that arrives before its call waits for it; a value whose call was refused,
cancelled or never made is dropped, and with it its memory and its borrows. So is one
that comes a second time: of two threads that find a future done, each may send it.
"""

from __future__ import annotations

import os
import secrets
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from threading import get_ident
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from mooactor import errors
from mooactor.control import bodies, codec, envelope
from mooactor.control.interrupts import was_interrupted
from mooactor.control.keys import actor_of
from mooactor.control.links import Link, Links
from mooactor.control.sender import Sender
from mooactor.process.objects.audit import INBOX_S
from mooactor.process.objects.borrow import Borrowing
from mooactor.process.objects.future import Future, Reply, taken_over
from mooactor.process.objects.payloads import Payloads
from mooactor.process.objects.relay import Key

if TYPE_CHECKING:
    from mooactor.process.objects.broadcast import Broadcaster
    from mooactor.process.objects.inbound import Transfer
    from mooactor.process.objects.relay import Relay
    from mooactor.process.objects.table import ObjectTable, Stored

#: The time that a value waits for its call, which was sent within microseconds of it.
_UNCLAIMED_S = 60.0
_LATELY = 1024  # tokens that are remembered


class Producer(Protocol):
    """The callee's side, whose results can be forwarded."""

    def on_forward(self, sender: int, call_id: int, pair: bytes) -> bool:
        """Whether the result of that call will be sent to a third process, too."""


class Values:
    """Values on their way to this process, and those that it sends or forwards."""

    #: The callee's side, in an actor's process.
    producer: Producer | None = None

    def __init__(
        self,
        links: Links,
        sender: Sender,
        payloads: Payloads,
        table: ObjectTable,
        broadcaster: Broadcaster,
        relay: Relay,
        later: Callable[[float, Callable[[], None]], None],
        wake: Callable[[], None],
    ) -> None:
        """`later`: call in so many seconds. `wake`: make waiting threads look again."""
        self._me = links.process_id
        self._links = links
        self._sender = sender
        self._payloads = payloads
        self._table = table
        self._broadcaster = broadcaster
        self._relay = relay
        self._later = later
        self._wake = wake
        self._delivers = 0  # the thread that delivers a value just now
        self._expected: dict[int, Future] = {}
        self._forwarded: dict[int, tuple[Future, int]] = {}
        self._arriving: dict[int, Transfer] = {}
        self._unclaimed: OrderedDict[int, float] = OrderedDict()  # by token: since when
        self._given_up: OrderedDict[int, None] = OrderedDict()  # lately, by token
        self._used: OrderedDict[int, None] = OrderedDict()  # lately, by token

    def __len__(self) -> int:
        return len(self._expected)

    def send(self, ref: Future, target: int, token: int) -> int:
        """Have the value of `ref` sent to process `target` as `token`. If that fails,
        the error is sent in its place.

        Returns the process id of its sender: its producer, or this one.
        """
        ref.end_with_session()  # an error is a result, too
        home = getattr(ref, "home", None)
        if home is not None and home.owner != self._me and not ref.state:
            pair = bodies.pack_pair(target, token)
            self._sender.post(home.owner, envelope.FETCH, home.object_id, pair)
            return int(home.owner)
        if home is not None and home.owner == self._me:
            stored = self._table.stored(home.object_id)
            if stored is not None:
                self._send_stored(stored, target, token)
                return self._me
        link = ref.link
        if not ref.state and link is not None and link.cause is None:
            self._forwarded[token] = (ref, target)
            self._links.peer_of(link).flush()
            self._sender.post(
                link.process_id,
                envelope.FORWARD,
                ref.call_id,
                bodies.pack_pair(target, token),
            )
            ref.listen(lambda: self._forward_failure(token))
            return int(link.process_id)
        ref.listen(lambda: self._send_result(ref, target, token))
        return self._me

    def _send_stored(self, stored: Stored, target: int, token: int) -> None:
        try:
            self._broadcaster.send(stored, target, token, self.send_error)
        except errors.MooError as error:
            self.send_error(target, token, error)

    def _send_result(self, ref: Future, target: int, token: int) -> None:
        failure = ref.failure()
        if failure is not None:
            self.send_error(target, token, failure)
            return
        flags = 0
        try:
            with Borrowing(self._payloads.borrows, target) as borrowing:
                payload, buffers = codec.encode(ref.unwrap())
            if buffers:
                payload = self._payloads.attach(payload, buffers, target)
                flags = envelope.ATTACHED
        except BaseException as error:
            if was_interrupted(error):
                raise  # if it was a listener, it is called again
            self.send_error(target, token, error)
            return
        payload, flags = borrowing.issue(target, payload, flags)
        self._sender.post(target, envelope.VALUE, token, payload, flags)

    def send_error(self, target: int, token: int, error: BaseException) -> None:
        """Send an error in place of a value."""
        with Borrowing(self._payloads.borrows, target) as borrowing:
            payload = codec.encode_error(error, f"process {os.getpid()}")
        payload, flags = borrowing.issue(target, payload, envelope.ERROR)
        self._sender.post(target, envelope.VALUE, token, payload, flags)

    def _forward_failure(self, token: int) -> None:
        """The producer has no result to forward: tell the target."""
        entry = self._forwarded.get(token)
        if entry is not None and entry[0].failure() is not None:
            self._send_result(entry[0], entry[1], token)
            self._forwarded.pop(token, None)

    def expect(self, token: int, producer: int) -> Future:
        """The value that will come as `token`, sent by process `producer`."""
        self._unclaimed.pop(token, None)
        future = self._expected.get(token)
        if future is None:
            future = self._expected[token] = Future()
            if token in self._given_up:
                future.set_error(_late(token))
        if not future.state and producer != self._me:
            future.link = self._links.link(
                actor_of(producer), producer & 0xFFFF, "the producer", watch=True
            )
            if self._links.is_gone(producer):
                self._doubt(token)
        return future

    def _doubt(self, token: int) -> None:
        """Its producer is dead, and no further notice of that will come. A value sent
        before may still lie in the inbox."""
        self._later(INBOX_S, partial(self._settle_doubt, token))

    def _settle_doubt(self, token: int) -> None:
        future = self._expected.get(token)
        if future is None or token in self._arriving:
            return
        link: Link | None = future.link
        if link is not None and link.cause is not None:
            future.set_error(link.gone(delivered=None))
        else:  # another process of that actor lives, without this value
            gone = "the process that should have sent this value is dead"
            future.set_error(errors.ActorUnavailable(gone))
        self._wake()

    def forget(self, token: int) -> None:
        """Drop the expectation of a value, and its data under way."""
        if token in self._expected:
            _remember(self._used, token)  # first: unknown, it would be expected anew
            self._expected.pop(token, None)
        if token in self._arriving:
            self._payloads.cancel(self._arriving.get(token))
            self._arriving.pop(token, None)

    def fetch(
        self, owner: int, object_id: int, then: Callable[[Future], object]
    ) -> Future:
        """Ask the owner of an object for its value; `then` gets the future of it, once
        that is done, and perhaps twice."""
        token = secrets.randbits(63)
        try:
            future = self.expect(token, owner)
            future.listen(lambda: then(future))
            # Last: if a signal handler cuts `then` short, the value is still expected
            # when its record is handled again.
            future.listen(lambda: self.forget(token))
            target = bodies.pack_pair(self._me, token)
            self._sender.post(owner, envelope.FETCH, object_id, target)
        except BaseException:
            self.forget(token)
            raise
        return future

    def refuse(self, token: int, producer: int) -> None:
        """Its call does not run."""
        self.expect(token, producer)
        self.abandon(token)

    def abandon(self, token: int) -> None:
        """Nobody waits for it any more, though it may still come."""
        future = self._expected.get(token)
        if future is None:
            return
        future.listen(lambda: self.forget(token))
        if not self._relay.knows(token):
            self._payloads.cancel(self._arriving.get(token))

    def on_value(self, record: envelope.Record) -> None:
        """A value, or the notice that it is not available. In the poller's thread."""
        sender, token, relay = record.sender, record.call_id, self._relay
        if record.flags & envelope.GONE:
            if not record.flags & envelope.ERROR:
                relay.ask_owner(token)
                return
            relay.give_up(token, codec.decode_error(bytes(record.payload)))
        if self._has_come(token):
            reply = self._payloads.reply_of(record)  # its memory is given back
            future = self._expected.get(token)
            if future is not None and future.state:
                future.set_raw(reply)  # for listeners, if handling it was cut short
            return
        if record.flags & envelope.KEEP:
            number, payload = bodies.split_number(record.payload)
            record = record._replace(payload=payload)
            relay.expect(token, Key(sender, number))
        future = self._expected.get(token)
        if future is None:
            future = self._expected[token] = Future()
            self._note_unclaimed(token)
        reply = self._payloads.reply_of(record)
        transfer = self._payloads.receive(reply, partial(self._arrived, token, False))
        if transfer is None:
            self._came(token, future, reply, taken_over(reply))
        else:
            self._arriving[token] = transfer

    def _has_come(self, token: int) -> bool:
        future = self._expected.get(token)
        if future is None:
            return token in self._used
        return bool(future.state) or token in self._arriving

    def _note_unclaimed(self, token: int) -> None:
        """Nobody waits for it yet: its call is under way, or its caller died before it
        sent that."""
        now = perf_counter()
        self._unclaimed[token] = now
        while self._unclaimed:
            oldest, since = next(iter(self._unclaimed.items()))
            if now - since < _UNCLAIMED_S:
                return
            del self._unclaimed[oldest]
            self.abandon(oldest)
            _remember(self._given_up, oldest)

    def _came(
        self, token: int, future: Future, reply: Reply, error: BaseException | None
    ) -> None:
        relay = self._relay
        if error is not None or reply.failed:
            if relay.retry(token, error):
                return
        else:
            relay.arrived(token, reply)
        if error is not None:
            reply = reply.replaced_by(codec.encode_error(error, "the receiver"))
        self._delivers = get_ident()
        try:
            future.set_raw(reply)
        finally:
            self._delivers = 0
        future.link = None
        self._wake()

    def delivers_here(self) -> bool:
        """For listeners of expected values: whether they are called by the poller's
        thread. False also where another delivery came in between, which is rare."""
        return self._delivers == get_ident()

    def _arrived(self, token: int, settled: bool) -> None:
        """The data of a value is there, or was lost."""
        transfer, future = self._arriving.get(token), self._expected.get(token)
        if transfer is None or future is None:
            return
        error = transfer.error
        if transfer.lost:
            if self._relay.ask_owner(token):
                del self._arriving[token]
                return
            if not settled:  # if it died, news of that is coming
                self._payloads.soon(partial(self._arrived, token, True))
                return
            error = transfer.cut_off("a value was")
        del self._arriving[token]
        self._came(token, future, transfer.reply, error)

    def on_forward(self, record: envelope.Record) -> None:
        """From a caller: forward a result. From a producer: whether it will."""
        sender, pair = record.sender, bytes(record.payload)
        target, token = bodies.pair(pair)
        entry = self._forwarded.pop(token, None)
        if entry is None:
            known = self.producer is not None and self.producer.on_forward(
                sender, record.call_id, pair
            )
            flags = 0 if known else envelope.GONE
            self._sender.post(sender, envelope.FORWARD, record.call_id, pair, flags)
        elif record.flags & envelope.GONE:
            ref = entry[0]
            ref.listen(lambda: self._send_result(ref, target, token))
        else:
            self._forwarded[token] = entry  # kept until it is done, for its failure
            entry[0].listen(lambda: self._settle_forward(token))

    def _settle_forward(self, token: int) -> None:
        """The producer forwards; only a failure is still ours to tell."""
        self._forward_failure(token)
        self._forwarded.pop(token, None)

    def on_fetch(self, record: envelope.Record) -> None:
        """Another process asks for a value of ours."""
        object_id = record.call_id
        target, token = bodies.pair(record.payload)
        stored = self._table.stored(object_id)
        future = self._table.future(object_id)
        if stored is not None:
            self._send_stored(stored, target, token)
        elif future is not None:
            found = future
            found.listen(lambda: self._send_result(found, target, token))
        else:
            gone = errors.ActorUnavailable(
                "the value of this Ref has been freed; compute it again"
            )
            self.send_error(target, token, gone)

    def on_retry(self, record: envelope.Record) -> None:
        """A value that should come from a holder did not."""
        token = record.call_id
        try:
            self._broadcaster.retry(token)
        except errors.MooError as error:
            self.send_error(record.sender, token, error)

    def expected_of(self, link: Link) -> list[Future]:
        """The values expected from an actor."""
        return [o for o in list(self._expected.values()) if o.link is link]

    def not_here_of(self, link: Link) -> list[Future]:
        """Those of them of which nothing has come, not even the record."""
        expected = list(self._expected.items())
        return [o for token, o in expected if o.link is link and self._is_away(token)]

    def _is_away(self, token: int) -> bool:
        return token not in self._arriving

    def close(self) -> None:
        """Nothing will arrive any more: expected values fail."""
        for future in list(self._expected.values()):
            future.set_error(errors.session_ended())
        self._expected.clear()


def placed(arg: Any, refs: list[tuple[int, Future]]) -> Any:
    """An argument, or a placeholder for the Ref that it is, which is noted."""
    if not isinstance(arg, Future):
        return arg
    token = secrets.randbits(63)
    refs.append((token, arg))
    return bodies.Placeholder(token)


def _remember(tokens: OrderedDict[int, None], token: int) -> None:
    tokens[token] = None
    if len(tokens) > _LATELY:
        tokens.popitem(last=False)


def _late(token: int) -> errors.MooError:
    return errors.ActorUnavailable(
        f"an argument arrived {_UNCLAIMED_S:.0f} s before its call and was dropped; "
        "call again",
        delivered=False,
    )
