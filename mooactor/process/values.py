# SPDX-License-Identifier: MIT
"""How the value of a Ref reaches a third process: from whoever has it, directly.

A Ref among the arguments of a call becomes a placeholder with a random *token*; its
value is sent to the callee as a VALUE record with that token: by this process if the
value is here, by its producer (FORWARD) if it is still to come, by its owner (FETCH)
if it was borrowed. The callee runs the call once the values of all tokens are there.
"""

from __future__ import annotations

import os
import secrets
import struct
from functools import partial
from typing import TYPE_CHECKING, Any

from mooactor import errors
from mooactor.control import codec, envelope
from mooactor.control.keys import actor_of
from mooactor.process.calls import PAIR, Placeholder
from mooactor.process.lending import lending
from mooactor.process.links import Link
from mooactor.process.outcome import Outcome, Reply, taken_over
from mooactor.process.relay import Key

if TYPE_CHECKING:
    from mooactor.process.arrivals import Arrival
    from mooactor.process.runtime import Runtime

_U64 = struct.Struct("<Q")


class Values:
    """Values on their way to this process, and those that it sends or forwards."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._expected: dict[int, Outcome] = {}
        self._forwarded: dict[int, tuple[Outcome, int]] = {}
        self._arriving: dict[int, Arrival] = {}

    def __len__(self) -> int:
        return len(self._expected)

    def placed(self, arg: Any, link: Link, tokens: list[tuple[int, int]]) -> Any:
        """A Ref becomes a placeholder, and its value is sent on its way."""
        if not isinstance(arg, Outcome):
            return arg
        token = secrets.randbits(63)
        producer = self.send(arg, link.process_id, token)
        tokens.append((token, producer))
        return Placeholder(token)

    def send(self, ref: Outcome, target: int, token: int) -> int:
        """Have the value of `ref` sent to process `target` as `token`.

        Returns the process id of whoever sends it: its producer, or this one.
        """
        home = getattr(ref, "home", None)
        if (
            home is not None
            and home.owner != self._runtime.process_id
            and not ref.state
        ):
            pair = PAIR.pack(target, token)
            self._runtime.post(home.owner, envelope.FETCH, home.object_id, pair)
            return int(home.owner)
        if home is not None and home.owner == self._runtime.process_id:
            stored = self._runtime.objects.stored(home.object_id)
            if stored is not None:
                self._runtime.spread.send(stored, target, token)
                return self._runtime.process_id
        link = ref.link
        if not ref.state and link is not None and link.cause is None:
            self._forwarded[token] = (ref, target)
            self._runtime.peer_of(link).flush()
            self._runtime.post(
                link.process_id,
                envelope.FORWARD,
                ref.call_id,
                PAIR.pack(target, token),
            )
            ref.listen(lambda: self._forward_failure(token))
            return int(link.process_id)
        ref.listen(lambda: self._send_result(ref, target, token))
        return self._runtime.process_id

    def _send_result(self, ref: Outcome, target: int, token: int) -> None:
        try:
            value = ref.unwrap()
            with lending(self._runtime, target):
                data, buffers = codec.encode(value)
            if buffers:
                data = self._runtime.attach(data, buffers, target)
        except BaseException as error:
            self.send_error(target, token, error)
            return
        self._send_payload(target, token, data, bool(buffers))

    def _send_payload(
        self, target: int, token: int, payload: bytes, attached: bool
    ) -> None:
        flags = envelope.ATTACHED if attached else 0
        self._runtime.post(target, envelope.VALUE, token, payload, flags)

    def send_error(self, target: int, token: int, error: BaseException) -> None:
        """Send why there is no value."""
        payload = codec.encode_error(error, f"process {os.getpid()}")
        self._runtime.post(target, envelope.VALUE, token, payload, envelope.ERROR)

    def _forward_failure(self, token: int) -> None:
        """The producer cannot forward what did not come to be: tell the target."""
        entry = self._forwarded.get(token)
        if entry is not None and entry[0].failure() is not None:
            del self._forwarded[token]
            self._send_result(entry[0], entry[1], token)

    def expect(self, token: int, producer: int) -> Outcome:
        """The value that will come as `token`, sent by process `producer`."""
        outcome = self._expected.get(token)
        if outcome is None:
            outcome = self._expected[token] = Outcome()
        if not outcome.state and producer != self._runtime.process_id:
            outcome.link = self._runtime.link(
                actor_of(producer), producer & 0xFFFF, "the producer", watch=True
            )
        return outcome

    def forget(self, token: int) -> None:
        self._expected.pop(token, None)
        arrival = self._arriving.pop(token, None)
        if arrival is not None:
            self._runtime.cancel_arrival(arrival)

    def fetch(self, owner: int, object_id: int, label: str) -> Outcome:
        """Ask the owner of an object for its value."""
        token = secrets.randbits(63)
        outcome = self.expect(token, owner)
        self._runtime.post(
            owner, envelope.FETCH, object_id, PAIR.pack(self._runtime.process_id, token)
        )
        outcome.listen(lambda: self.forget(token))
        return outcome

    def lend(self, object_id: int, owner: int, borrower: int) -> None:
        """Note with the owner that `borrower` is about to hold an object, too."""
        if owner == self._runtime.process_id:
            self._runtime.objects.borrow(object_id, borrower, 1)
            self._runtime.pump.arm()
        else:
            self._runtime.post(owner, envelope.BORROW, object_id, _U64.pack(borrower))

    def abandon(self, token: int) -> None:
        """Nobody waits for it any more, though it may still come."""
        outcome = self._expected.get(token)
        if outcome is None:
            return
        outcome.listen(lambda: self.forget(token))
        if not self._runtime.relay.knows(token):
            self._runtime.cancel_arrival(self._arriving.get(token))

    def on_value(self, sender: int, record: envelope.Record) -> None:
        token, relay = record.call_id, self._runtime.relay
        if record.flags & envelope.GONE:
            if not record.flags & envelope.ERROR:
                relay.ask_owner(token)
                return
            relay.give_up(token, codec.decode_error(bytes(record.payload)))
        if record.flags & envelope.KEEP:
            number, payload = envelope.split_number(record.payload)
            record = record._replace(payload=payload)
            relay.expect(token, Key(sender, number))
        outcome = self._expected.get(token)
        if outcome is None:
            outcome = self._expected[token] = Outcome()
        reply = self._runtime.reply_of(record)
        arrival = self._runtime.receive(reply, partial(self._arrived, token, False))
        if arrival is None:
            self._came(token, outcome, reply, taken_over(reply))
        else:
            self._arriving[token] = arrival

    def _came(
        self, token: int, outcome: Outcome, reply: Reply, error: BaseException | None
    ) -> None:
        relay = self._runtime.relay
        if error is not None or reply.failed:
            if relay.retry(token, error):
                return
        else:
            relay.arrived(token, reply)
        if error is not None:
            reply = reply.replaced_by(codec.encode_error(error, "the receiver"))
        outcome.set_raw(reply)
        outcome.link = None
        self._runtime.pump.wake()

    def _arrived(self, token: int, settled: bool) -> None:
        """The data of a value is there, or was lost."""
        arrival, outcome = self._arriving.get(token), self._expected.get(token)
        if arrival is None or outcome is None:
            return
        error = arrival.error
        if isinstance(error, errors.ActorDied):
            if self._runtime.relay.ask_owner(token):
                del self._arriving[token]
                return
            if not settled:  # if it died, news of that is coming
                self._runtime.soon(partial(self._arrived, token, True))
                return
            error = errors.ActorUnavailable(
                f"the connection broke while a value was under way ({error})"
            )
        del self._arriving[token]
        self._came(token, outcome, arrival.reply, error)

    def on_forward(self, sender: int, record: envelope.Record) -> None:
        """From a caller: forward a result. From a producer: whether it will."""
        pair = bytes(record.payload)
        target, token = pair_of(pair)
        entry = self._forwarded.pop(token, None)
        if entry is None:
            known = (
                self._runtime.server is not None
                and self._runtime.server.on_forward(sender, record.call_id, pair)
            )
            flags = 0 if known else envelope.GONE
            self._runtime.post(sender, envelope.FORWARD, record.call_id, pair, flags)
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

    def on_fetch(self, object_id: int, target: int, token: int) -> None:
        stored = self._runtime.objects.stored(object_id)
        outcome = self._runtime.objects.outcome(object_id)
        if stored is not None:
            try:
                self._runtime.spread.send(stored, target, token)
            except errors.MooError as error:
                self.send_error(target, token, error)
        elif outcome is not None:
            found = outcome
            found.listen(lambda: self._send_result(found, target, token))
        else:
            gone = errors.ActorUnavailable("the value of this Ref is gone")
            self.send_error(target, token, gone)

    def expected_of(self, link: Link) -> list[Outcome]:
        """The values that an actor was to send."""
        return [o for o in list(self._expected.values()) if o.link is link]

    def close(self) -> None:
        """Nothing will come any more: what is expected fails."""
        for outcome in list(self._expected.values()):
            outcome.set_error(errors.ActorUnavailable("the session has ended"))
        self._expected.clear()


def pair_of(payload: bytes | memoryview) -> tuple[int, int]:
    if len(payload) != PAIR.size:
        raise envelope.MalformedMessage("a control record of the wrong size")
    target, token = PAIR.unpack(payload)
    return target, token


def number_of(payload: bytes | memoryview) -> int:
    if len(payload) != _U64.size:
        raise envelope.MalformedMessage("a control record of the wrong size")
    return int(_U64.unpack(payload)[0])
