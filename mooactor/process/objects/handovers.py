# SPDX-License-Identifier: MIT
"""Handovers: the values of Refs that are handed on to a third process.

A Ref among the arguments of a call becomes a placeholder with a random *token*; its
value is sent to the callee as a VALUE record with that token: by this process if the
value is here, by its producer (FORWARD) if it is still to come, by its owner (FETCH)
if it was borrowed. This module is the side of those who send, `values` the callee's.

Invariant: **whoever waits for a Ref that was handed on gets its value, or the error
with its cause**, whichever records a lost connection took with it, as long as the
caller that handed it on lives. Each loss is made good by one who can see it:

1. *The request and its answer.* A producer or owner answers with a promise to send the
   value. Without one, and if the Ref fails, the caller sends the result itself when the
   Ref ends. So it does not matter which of the two records was lost, nor whether the
   call was made again, under another id. A FETCH is posted again after each break of a
   connection with the owner, and if the receiver asks (see 2), until there is a promise
   or the owner is dead.
2. *The promised value.* Its receiver hears of the break, or of the sender's death, and
   asks the caller for it (RETRY). From then on the caller counts on no promise of
   before. If the Ref has ended, or its owner has promised, the caller has nothing to
   send (GONE), and the receiver's error is the cause that it knows.
3. *The caller's own value.* If the connection from the caller to the callee breaks, the
   caller ends its calls or makes them again. The receiver ends what they wait for.

A value may come twice, therefore: the second is dropped. Nothing of a handover is kept
here once its Ref has ended, or its owner has promised, or the process that it concerns
is dead, whether the call that uses it has ended or not. The Ref of a FETCH is kept for
as long, so that its owner still has the value.
"""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Iterable
from functools import partial
from typing import Any, Protocol

from mooactor import errors
from mooactor.control import bodies, codec, envelope
from mooactor.control.complaints import was_interrupted
from mooactor.control.keys import died_with
from mooactor.control.links import Link, Links
from mooactor.control.sender import Sender
from mooactor.process.objects.borrow import Borrowing
from mooactor.process.objects.broadcast import Broadcaster
from mooactor.process.objects.future import ERROR, Future
from mooactor.process.objects.holds import Hold
from mooactor.process.objects.payloads import Payloads
from mooactor.process.objects.table import ObjectTable, Stored


class Producer(Protocol):
    """The callee's side, whose results can be forwarded."""

    def on_forward(self, sender: int, call_id: int, pair: bytes) -> bool:
        """Whether the result of that call will be sent to a third process, too."""

    def will_forward(self, token: int) -> bool:
        """Whether a result will be sent as that token."""


class _Owed:
    """The result of a pending Ref, which a third process gets from here when it is
    there, unless its producer has promised it."""

    __slots__ = ("ref", "target", "promised", "asked")

    def __init__(self, ref: Future, target: int) -> None:
        self.ref = ref
        self.target = target
        self.promised = False
        self.asked = False  # by its receiver, which cannot count on a promise


class _Fetch:
    """A borrowed value that a third process shall have, and the latest request for it,
    the only one whose promise counts: an earlier value may be lost already."""

    __slots__ = ("ref", "owner", "object_id", "target", "request")

    def __init__(self, ref: Future, home: Hold, target: int) -> None:
        self.ref = ref
        self.owner = home.owner
        self.object_id = home.object_id
        self.target = target
        self.request = 0


class Handovers:
    """Those of one process. Threads: any, for `send` and `send_error`; the poller's for
    ``on_…``, the housekeeper's for the news of breaks and deaths. So tables are changed
    one item at a time, and read as copies."""

    #: The callee's side, in an actor's process.
    producer: Producer | None = None

    def __init__(
        self,
        links: Links,
        sender: Sender,
        payloads: Payloads,
        table: ObjectTable,
        broadcaster: Broadcaster,
        spans_hosts: bool,
    ) -> None:
        """`spans_hosts`: connections may break."""
        self._me = links.process_id
        self._links = links
        self._sender = sender
        self._payloads = payloads
        self._table = table
        self._broadcaster = broadcaster
        broadcaster.failed = self.send_error
        self._spans_hosts = spans_hosts
        self._owed: dict[int, _Owed] = {}  # by token
        self._fetches: dict[int, _Fetch] = {}  # by token: those not promised yet
        self._requests = itertools.count(1)

    def __len__(self) -> int:
        return len(self._owed) + len(self._fetches)

    # -- as the caller -----------------------------------------------------

    def send(self, ref: Future, target: int, token: int) -> int:
        """Have the value of `ref` sent to process `target` as `token`. If that fails,
        the error is sent in its place.

        Returns the process id of its sender: its producer, or this one.
        """
        ref.end_with_session()  # an error is a result, too
        ref.hear()  # its receiver is told
        home: Hold | None = getattr(ref, "home", None)
        if home is not None and home.owner != self._me and not ref.state:
            self._fetch(token, _Fetch(ref, home, target))
            return home.owner
        if home is not None and home.owner == self._me:
            stored = self._table.stored(home.object_id)
            if stored is not None:
                self.send_stored(stored, target, token)
                return self._me
        if ref.state:
            return self._send_result(ref, target, token)
        link: Link | None = ref.link
        if link is None or link.cause is not None:
            self._owe(ref, target, token)
            return self._me
        producer = link.process_id
        self._links.peer_of(link).flush()  # the call itself comes first
        self._owe(ref, target, token)
        pair = bodies.pack_numbers(target, token)
        self._sender.post(producer, envelope.FORWARD, ref.call_id, pair)
        return producer

    def take_back(self, tokens: Iterable[tuple[int, int]]) -> None:
        """The call with these tokens is not made. Its callee drops values that were
        sent, see `values.Unclaimed`."""
        for token, _ in tokens:
            self._owed.pop(token, None)
            self._fetches.pop(token, None)

    def _owe(self, ref: Future, target: int, token: int) -> None:
        owed = self._owed[token] = _Owed(ref, target)
        ref.listen(partial(self._ended, token, owed))

    def _ended(self, token: int, owed: _Owed) -> None:
        """Its Ref has ended. First send, then forget: this may be cut short, and is
        called again then."""
        if self._owed.get(token) is not owed:
            return  # it is not needed any more
        ref = owed.ref
        if ref.state == ERROR or owed.asked or not owed.promised:
            self._send_result(ref, owed.target, token)
        self._owed.pop(token, None)

    def _fetch(self, token: int, fetch: _Fetch) -> None:
        if not self._spans_hosts:
            self._post_fetch(token, fetch)
            return
        self._links.watch(fetch.owner)
        self._fetches[token] = fetch
        try:
            self._post_fetch(token, fetch)
        except BaseException:
            self._fetches.pop(token, None)  # there will be no answer
            raise
        # Looked at after it was noted: a later death has a notice of its own. The
        # receiver knows, or finds out.
        if self._links.is_gone(fetch.owner):
            self._fetches.pop(token, None)

    def _post_fetch(self, token: int, fetch: _Fetch) -> None:
        number = 0
        if self._spans_hosts:
            number = fetch.request = next(self._requests)
        body = bodies.pack_numbers(fetch.target, token, number)
        self._sender.post(fetch.owner, envelope.FETCH, fetch.object_id, body)

    def connection_broke(self, process_id: int) -> None:
        """A question to that process, or its promise, may be lost."""
        for token, fetch in list(self._fetches.items()):
            if fetch.owner == process_id:
                self._post_fetch(token, fetch)
        for target, token in self._broadcaster.connection_broke(process_id):
            self._broadcast_again(target, token, process_id)

    def process_lost(self, process_id: int) -> None:
        """It is dead, and so are the same actor's processes before it: nothing is
        needed of them, or there, any more."""
        for token, fetch in list(self._fetches.items()):
            both = fetch.owner, fetch.target
            if any(died_with(one, process_id) for one in both):
                self._fetches.pop(token, None)
                if fetch.ref.is_here():  # or is known to have gone with its producer
                    self._send_result(fetch.ref, fetch.target, token)
                else:
                    self._send_gone(fetch.target, token)
        for token, owed in list(self._owed.items()):
            if died_with(owed.target, process_id):
                self._owed.pop(token, None)

    def on_retry(self, record: envelope.Record) -> None:
        """A receiver has doubts about a value, or knows that it does not come from
        where it should have. It is told if it does not come from here, either."""
        token = record.call_id
        owed, fetch = self._owed.get(token), self._fetches.get(token)
        if owed is not None:
            owed.asked = True
            if owed.ref.state:  # its end may have counted on the promise
                self._ended(token, owed)
        elif fetch is not None:
            self._post_fetch(token, fetch)
        elif self.producer is not None and self.producer.will_forward(token):
            pass
        elif not self._broadcast_again(record.sender, token, _holder_in(record)):
            self._send_gone(record.sender, token)

    def _broadcast_again(self, target: int, token: int, holder: int) -> bool:
        try:
            return self._broadcaster.retry(token, holder)
        except errors.MooError as error:
            self.send_error(target, token, error)
            return True

    # -- values out --------------------------------------------------------

    def send_stored(self, stored: Stored, target: int, token: int) -> None:
        """Send a stored value, or the error of that."""
        try:
            self._broadcaster.send(stored, target, token)
        except errors.MooError as error:
            self.send_error(target, token, error)

    def _send_result(self, ref: Future, target: int, token: int) -> int:
        """Send the value of a Ref that has ended, or have its owner send it. Returns
        the process id of its sender."""
        if self._links.is_gone(target):
            return self._me
        failure = ref.failure()
        if failure is not None:
            self.send_error(target, token, failure)
            return self._me
        away = ref.elsewhere()
        home = None if away is None else away.home
        if home is not None:
            self._fetch(token, _Fetch(ref, home, target))
            return home.owner
        pulls = ref.pull()
        if pulls:  # of several results: it is put together here
            pulls[0].listen(partial(self._send_result, ref, target, token))
        else:
            self._send_value(ref, target, token)
        return self._me

    def _send_value(self, ref: Future, target: int, token: int) -> None:
        try:
            borrowing = Borrowing(self._payloads.borrows, target)
            data, buffers = borrowing.note(codec.encode, ref.unwrap())
            payload, flags = self._payloads.pack(data, buffers, borrowing, target)
        except BaseException as error:
            if was_interrupted(error):
                raise  # if it was a listener, it is called again
            self.send_error(target, token, error)
            return
        self._sender.post(target, envelope.VALUE, token, payload, flags)

    def send_error(self, target: int, token: int, error: BaseException) -> None:
        """Send an error in place of a value."""
        borrowing = Borrowing(self._payloads.borrows, target)
        data = borrowing.note(codec.encode_error, error, f"process {os.getpid()}")
        payload, flags = borrowing.issue(target, data, envelope.ERROR)
        self._sender.post(target, envelope.VALUE, token, payload, flags)

    def _send_gone(self, target: int, token: int) -> None:
        self._sender.post(target, envelope.VALUE, token, b"", envelope.GONE)

    # -- as the producer, and as the owner ---------------------------------

    def on_forward(self, record: envelope.Record) -> None:
        """From a caller: forward a result. From a producer: it will."""
        sender, call_id, pair = record.sender, record.call_id, bytes(record.payload)
        _, token = bodies.numbers(pair, 2)
        if record.flags & envelope.PROMISED:
            owed = self._owed.get(token)
            if owed is not None:
                owed.promised = True
            return
        # Without a promise its caller does it, which has the result soon.
        producer = self.producer
        if producer is not None and producer.on_forward(sender, call_id, pair):
            flags = envelope.PROMISED
            self._sender.post(sender, envelope.FORWARD, call_id, pair, flags)

    def on_fetch(self, record: envelope.Record) -> None:
        """Another process asks for a value of ours. Or an owner promises one."""
        object_id, body = record.call_id, bytes(record.payload)
        target, token, number = bodies.numbers(body, 3)
        if record.flags & envelope.PROMISED:
            fetch = self._fetches.get(token)
            if fetch is not None and fetch.request == number:
                self._fetches.pop(token, None)
            return
        self._answer(object_id, target, token)
        if number:
            flags = envelope.PROMISED
            self._sender.post(record.sender, envelope.FETCH, object_id, body, flags)

    def _answer(self, object_id: int, target: int, token: int) -> None:
        stored = self._table.stored(object_id)
        future = self._table.future(object_id)
        if stored is not None:
            self.send_stored(stored, target, token)
        elif future is not None:
            if token not in self._owed:
                self._owe(future, target, token)
        else:
            gone = errors.ActorUnavailable(
                "the value of this Ref has been freed; compute it again"
            )
            self.send_error(target, token, gone)

    def close(self) -> None:
        """The session ends."""
        self._owed.clear()
        self._fetches.clear()


def _holder_in(record: envelope.Record) -> int:
    """From which a value did not come, as a RETRY says; 0: from no holder."""
    if not record.payload:
        return 0
    (holder,) = bodies.numbers(record.payload, 1)
    return holder


def placed(arg: Any, refs: list[tuple[int, Future]]) -> Any:
    """An argument, or what stands in for the Ref that it is, which is noted."""
    if not isinstance(arg, Future):
        return arg
    if arg.gathers and not arg.is_here():
        return bodies.Placeholders(placed(part, refs) for part in arg.parts)
    token = secrets.randbits(63)
    refs.append((token, arg))
    return bodies.Placeholder(token)
