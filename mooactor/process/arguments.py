# SPDX-License-Identifier: MIT
"""The arguments of calls, on their way into payloads."""

from __future__ import annotations

import secrets
import weakref
from typing import Any

from mooactor import errors
from mooactor.control import bodies, codec, envelope
from mooactor.control.complaints import was_interrupted
from mooactor.control.links import Link
from mooactor.process.calls import BLOCKING, context
from mooactor.process.loops import blocks_a_loop
from mooactor.process.objects.borrow import Borrowing
from mooactor.process.objects.broadcast import Broadcaster
from mooactor.process.objects.future import Future
from mooactor.process.objects.handovers import Handovers, placed
from mooactor.process.objects.payloads import Payloads
from mooactor.process.objects.table import Stored, size_of

#: Arguments of fewer bytes are not compared with those of other calls: calls with them
#: take up to a third longer then.
_COMMON_BYTES = 4 << 20


class CalleeGone(Exception):
    """The data plane knows that a call's process is dead; the notice is to come."""


class Arguments:
    """Encodes them, lends their memory, and sends the values of Refs after them."""

    def __init__(
        self,
        process_id: int,
        payloads: Payloads,
        handovers: Handovers,
        broadcaster: Broadcaster,
    ) -> None:
        self._process_id = process_id
        self._payloads = payloads
        self._handovers = handovers
        self._broadcaster = broadcaster
        # Large ones for another host, until all calls with them have ended.
        self._latest: weakref.ref[Stored] | None = None

    def encode(
        self,
        link: Link,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        flags: int,
        waits: int,
        future: Future,
    ) -> tuple[bytes, int]:
        """The payload of a call to the actor of `link`, and `flags` with those that say
        what is in it. `waits`: as in its form. `future`: its result; with a request, it
        is sent a second time.

        Raises:
          TypeError: an argument cannot be pickled.
          OutOfMemory: there is no room for them.
          ActorUnavailable: nothing leads to the actor's process.
          CalleeGone: that process is dead.
        """
        # All that can fail comes first: nothing is lent, and no value of a Ref sent on
        # its way, for a call that is not made.
        refs: list[tuple[int, Future]] = []
        if any(isinstance(arg, Future) for arg in args):
            args = tuple(placed(arg, refs) for arg in args)
        if kwargs:
            kwargs = {key: placed(arg, refs) for key, arg in kwargs.items()}
        borrowing = Borrowing(self._payloads.borrows, link.process_id)
        data, buffers = _encoded(borrowing, link.label, args, kwargs)
        if kwargs:
            flags |= envelope.KWARGS
        if not (buffers or refs or borrowing):
            return data, flags
        target = link.process_id
        again = future.request is not None
        alone = waits == BLOCKING or again or refs or borrowing.laid_out
        if not alone and self._may_go_far(buffers, target):
            if borrowing.defines:  # another callee may lack the definitions
                borrowing = Borrowing(self._payloads.borrows)
                data, buffers = _encoded(borrowing, link.label, args, kwargs)
            stored = self._in_common(data, buffers, borrowing)
            future.listen(stored.end_of_call)
            payload, more = self.prepared(stored, link)
            return payload, flags | more
        payload, more = self._packed(link, data, buffers, borrowing, again)
        flags |= more
        if refs:
            send = self._handovers.send
            tokens = [(token, send(ref, target, token)) for token, ref in refs]
            payload = bodies.pack_tokens(tokens, payload)
            flags |= envelope.REFS
        return payload, flags

    def take_back(self, payload: bytes | memoryview, flags: int) -> None:
        """A call with these arguments is not made after all."""
        if flags & envelope.REFS:
            tokens, payload = bodies.split_tokens(payload)
            self._handovers.take_back(tokens)
        self._payloads.take_back(payload, flags)

    def _packed(
        self,
        link: Link,
        data: bytes,
        buffers: codec.Buffers,
        borrowing: Borrowing,
        again: bool,
    ) -> tuple[bytes, int]:
        # Wait for contact where nobody but this thread's own program depends on it: not
        # in an actor, in an event loop, or where the poller sends a call again.
        wait = not again and context.get() is None and not blocks_a_loop()
        target = link.process_id
        try:
            return self._payloads.pack(data, buffers, borrowing, target, wait=wait)
        except errors.ActorUnavailable as error:
            raise errors.ActorUnavailable(
                f"the call to {link.label} was not made: {error}", delivered=False
            ) from None
        except errors.ActorDied:
            raise CalleeGone from None

    def _may_go_far(self, buffers: codec.Buffers, target: int) -> bool:
        """Whether they are large, and perhaps for a process of another host."""
        large = size_of(buffers) >= _COMMON_BYTES
        return large and self._broadcaster.may_be_elsewhere(target)

    def _in_common(
        self, data: bytes, buffers: codec.Buffers, borrowing: Borrowing
    ) -> Stored:
        """Those of a call that is under way, if they are the same: each host gets them
        once, as those of a group's call."""
        stored = None if self._latest is None else self._latest()
        if stored is None or not stored.is_same(data, buffers):
            flags = envelope.ARGUMENTS
            stored = Stored(
                self._payloads, data, buffers, borrowing, alone=True, flags=flags
            )
            self._latest = weakref.ref(stored)
        return stored

    def prepared(self, prepared: Stored, link: Link) -> tuple[bytes, int]:
        """The payload and the flags of a call with arguments that `prepare` encoded.

        Raises:
          ActorUnavailable: nothing leads to the actor's process.
          CalleeGone: that process is dead.
        """
        broadcaster, target = self._broadcaster, link.process_id
        try:
            if prepared.is_large and broadcaster.may_be_elsewhere(target):
                token = secrets.randbits(63)
                broadcaster.send(prepared, target, token)
                tokens = bodies.pack_tokens([(token, self._process_id)], b"")
                return tokens, envelope.REFS | envelope.WHOLE
            return prepared.payload_for(target)
        except errors.ActorDied:
            raise CalleeGone from None

    def prepare(
        self,
        label: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        receivers: tuple[int, ...],
    ) -> Stored | None:
        """Encode the arguments of a call to several actors once; None if each call
        has to encode them for itself, because it is the only one, or there are Refs
        among them."""
        refs = any(isinstance(arg, Future) for arg in (*args, *kwargs.values()))
        if refs or len(receivers) == 1:
            return None
        borrowing = Borrowing(self._payloads.borrows, *receivers)
        data, buffers = _encoded(borrowing, label, args, kwargs, whole=True)
        flags = envelope.ARGUMENTS
        stored = Stored(self._payloads, data, buffers, borrowing, flags=flags)
        stored.receivers = receivers if borrowing.defines else None
        return stored


def _encoded(
    borrowing: Borrowing,
    label: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    whole: bool = False,
) -> tuple[bytes, codec.Buffers]:
    """The arguments of a call: without names only `args`, unless they are `whole`."""
    try:
        if kwargs or whole:
            return borrowing.note(codec.encode, (args, kwargs))
        return borrowing.note(codec.encode_args, args)
    except errors.MooError:
        raise
    except Exception as error:
        if was_interrupted(error):
            raise
        what = borrowing.note(codec.find_unpicklable, args, kwargs)
        text = f"{what} of a call to {label} cannot be pickled: {error}"
        raise TypeError(text) from error
