# SPDX-License-Identifier: MIT
"""The arguments of calls, on their way into payloads."""

from __future__ import annotations

import secrets
from typing import Any

from mooactor import errors
from mooactor.control import bodies, codec, envelope
from mooactor.control.interrupts import was_interrupted
from mooactor.control.links import Link
from mooactor.process.calls import context
from mooactor.process.loops import blocks_a_loop
from mooactor.process.objects.borrow import Borrowing
from mooactor.process.objects.broadcast import Broadcaster
from mooactor.process.objects.future import Future
from mooactor.process.objects.handovers import Handovers, placed
from mooactor.process.objects.holds import NOTHING, Unsent
from mooactor.process.objects.payloads import Payloads
from mooactor.process.objects.table import Stored


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

    def encode(
        self,
        link: Link,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        flags: int,
        again: bool,
    ) -> tuple[bytes, int, Unsent]:
        """The payload of a call to the actor of `link`, `flags` with those that say
        what is in it, and what it lends. `again`: the call is sent a second time.

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
        try:
            if kwargs:
                data, buffers = borrowing.note(codec.encode, (args, kwargs))
                flags |= envelope.KWARGS
            else:
                data, buffers = borrowing.note(codec.encode_args, args)
        except errors.MooError:
            raise
        except Exception as error:
            if was_interrupted(error):
                raise
            what = borrowing.note(codec.find_unpicklable, args, kwargs)
            raise _unpicklable(what, link.label, error) from error
        if not (buffers or refs or borrowing):
            return data, flags, NOTHING
        unsent, target = Unsent(), link.process_id
        try:
            if buffers:
                data = self._attached(link, data, buffers, again)
                unsent.append((self._payloads.take_back, data))
                flags |= envelope.ATTACHED
            data, flags = borrowing.issue(target, data, flags, unsent)
            if refs:
                send, handed = self._handovers.send, [token for token, _ in refs]
                unsent.append((self._handovers.take_back, target, handed))
                tokens = [(token, send(ref, target, token)) for token, ref in refs]
                data = bodies.pack_tokens(tokens, data)
                flags |= envelope.REFS
        except BaseException:
            unsent.take_back()
            raise
        return data, flags, unsent

    def _attached(
        self, link: Link, data: bytes, buffers: codec.Buffers, again: bool
    ) -> bytes:
        # Wait for contact where nobody but this thread's own program depends on it: not
        # in an actor, in an event loop, or where the poller sends a call again.
        wait = not again and context.get() is None and not blocks_a_loop()
        try:
            return self._payloads.attach(data, buffers, link.process_id, wait=wait)
        except errors.ActorUnavailable as error:
            raise errors.ActorUnavailable(
                f"the call to {link.label} was not made: {error}", delivered=False
            ) from None
        except errors.ActorDied:
            raise CalleeGone from None

    def prepared(self, prepared: Stored, link: Link) -> tuple[bytes, int, Unsent]:
        """The payload and the flags of a call with arguments that `prepare` encoded,
        and what it lends.

        Raises:
          ActorUnavailable: nothing leads to the actor's process.
          CalleeGone: that process is dead.
        """
        broadcaster, target = self._broadcaster, link.process_id
        unsent = Unsent()
        try:
            if prepared.is_large and broadcaster.may_be_elsewhere(target):
                token = secrets.randbits(63)
                unsent.append((self._handovers.take_back, target, [token]))
                broadcaster.send(prepared, target, token, self._handovers.send_error)
                tokens = bodies.pack_tokens([(token, self._process_id)], b"")
                return tokens, envelope.REFS | envelope.WHOLE, unsent
            payload, flags = prepared.payload_for(target, unsent)
        except BaseException as error:
            unsent.take_back()
            if isinstance(error, errors.ActorDied):
                raise CalleeGone from None
            raise
        return payload, flags, unsent

    def prepare(
        self, label: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Stored | None:
        """Encode the arguments of a call to several actors once; None if each call
        has to encode them for itself, because there are Refs among them."""
        if any(isinstance(arg, Future) for arg in (*args, *kwargs.values())):
            return None
        borrowing = Borrowing(self._payloads.borrows)
        try:
            data, buffers = borrowing.note(codec.encode, (args, kwargs))
        except errors.MooError:
            raise
        except Exception as error:
            if was_interrupted(error):
                raise
            what = borrowing.note(codec.find_unpicklable, args, kwargs)
            raise _unpicklable(what, label, error) from error
        flags = envelope.ARGUMENTS
        return Stored(self._payloads, data, buffers, borrowing, flags=flags)


def _unpicklable(what: str, label: str, error: Exception) -> TypeError:
    return TypeError(f"{what} of a call to {label} cannot be pickled: {error}")
