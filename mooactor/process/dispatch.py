# SPDX-License-Identifier: MIT
"""Messages in: each record goes to the part of the runtime that it is meant for.

Whichever thread leads the pump calls `Dispatch.message`, so the methods named ``on_…``
run one at a time, in order. There are two exceptions, both rare: a signal handler or a
finalizer that waits for a call while its thread dispatches, and a leader that is
overtaken because it stays away. A handler of records may then run again, or beside
itself, for the same record. It may also be cut short at any line, by what a signal
handler raises, and run again afterwards. So every handler can be run twice:

* A call enters the mailbox by emptying an iterator that holds it once (`Job.entry`), an
  item of a stream its channel in the same way; a reply ends an outcome, of which the
  first end counts.
* What is made of a record is kept in its ``memo``.
* Credit given twice lets a producer get further ahead; a value sent or a reference
  counted twice is held longer than need be. A reference given back twice would be freed
  too early: that record is dropped before it is handled.
"""

from __future__ import annotations

import sys
import traceback
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from mooactor import errors
from mooactor.control import envelope
from mooactor.control.interrupts import was_interrupted

if TYPE_CHECKING:
    from mooactor.process.calls import CallContext
    from mooactor.process.runtime import Runtime

_MOST_TRIES = 3


class Server(Protocol):
    """The callee's side, in processes that hold an actor."""

    def on_call(self, sender: int, record: envelope.Record) -> None: ...
    def on_cancel(self, sender: int, call_id: int) -> None: ...
    def on_credit(self, sender: int, call_id: int, items: int) -> None: ...
    def on_stop(self, sender: int) -> None: ...
    def on_forward(self, sender: int, call_id: int, pair: bytes) -> bool: ...
    def on_process_lost(self, process_id: int) -> None: ...
    def has_ready(self) -> bool: ...
    def holders_of(self, sender: int, call_id: int) -> list[CallContext]: ...


class Dispatch:
    """Hands the records of each message on."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._open: dict[int, deque[envelope.Record]] = {}  # by serial
        self._dropped = 0
        self._dropped_said = -1.0

    def message(self, serial: int, message: bytes) -> None:
        """Act on one message; a malformed one is reported and dropped."""
        records = self._open.get(serial)
        if records is None:
            records = self._open.setdefault(serial, self._parsed(message))
            if not self._runtime.messenger.holds(serial):
                # Somebody else has dispatched it while we looked at it.
                self._open.pop(serial, None)
                return
        while records:
            try:
                record = records[0]
            except IndexError:
                break
            self._try(record, records)
            try:
                records.remove(record)
            except ValueError:
                pass
        self._runtime.post_what_is_due()

    def done_with(self, serial: int) -> None:
        """The message was taken from the queue: it does not come again."""
        self._open.pop(serial, None)

    def _parsed(self, message: bytes) -> deque[envelope.Record]:
        records: deque[envelope.Record] = deque()
        try:
            envelope.read_records(message, self._runtime.key, records)
        except (
            envelope.MalformedMessage,
            errors.AuthError,
            errors.VersionMismatch,
        ) as error:
            self._report_dropped(error)
        return records

    def _try(self, record: envelope.Record, records: deque[envelope.Record]) -> None:
        kind, runtime = record.kind, self._runtime
        if kind == envelope.RELEASE:
            records.remove(record)
        try:
            if kind == envelope.REPLY:
                runtime.caller.on_reply(record)
            elif kind == envelope.CALL and runtime.server is not None:
                runtime.server.on_call(record.sender, record)
            else:
                self._on_control(record.sender, record)
        except envelope.MalformedMessage as error:
            self._report_dropped(error)
            records.clear()  # who sends nonsense is not to be believed in the rest
        except Exception as error:
            memo = record.memo
            memo["tries"] = memo.get("tries", 0) + 1
            if was_interrupted(error) and memo["tries"] < _MOST_TRIES:
                raise  # and the record stays
            # From a peer with the key, so a bug in it or in us: say so and live on.
            print("mooactor: a message could not be handled:", file=sys.stderr)
            traceback.print_exc()
            records.clear()

    def _report_dropped(self, error: errors.MooError) -> None:
        """Say so, but once a second at most: a stranger may send a flood."""
        self._dropped += 1
        now = perf_counter()
        if now - self._dropped_said > 1.0:
            self._dropped_said = now
            count = f"{self._dropped} messages" if self._dropped > 1 else "a message"
            print(f"mooactor: dropped {count}: {error}", file=sys.stderr)
            self._dropped = 0

    def _on_control(self, sender: int, record: envelope.Record) -> None:
        runtime = self._runtime
        kind, number, server = record.kind, record.call_id, runtime.server
        if kind == envelope.VALUE:
            runtime.values.on_value(sender, record)
        elif kind == envelope.FORWARD:
            runtime.values.on_forward(sender, record)
        elif kind == envelope.FETCH:
            runtime.values.on_fetch(number, *envelope.pair(record.payload))
        elif kind == envelope.BORROW:
            (holder,) = envelope.numbers(record.payload, 1)
            runtime.objects.borrowed(number, holder, sender)
        elif kind == envelope.RELEASE:
            runtime.objects.given_back(number, *envelope.pair(record.payload))
        elif kind == envelope.LOST:
            if server is not None and sender == runtime.process_id:
                server.on_process_lost(number)
        elif kind == envelope.WATCH:
            runtime.watch(number)
        elif kind >= envelope.AUDIT:
            runtime.audit.on_record(sender, record)
        elif kind >= envelope.REDIRECT:
            self._on_spread(sender, record)
        elif kind == envelope.PROBE:
            probe = envelope.Probe.of(record.payload)
            runtime.deadlocks.on_probe(sender, number, probe)
        elif server is not None:
            if kind == envelope.CANCEL:
                server.on_cancel(sender, number)
            elif kind == envelope.CREDIT:
                server.on_credit(sender, number, int(record.value))
            elif kind == envelope.STOP:
                server.on_stop(sender)

    def _on_spread(self, sender: int, record: envelope.Record) -> None:
        runtime = self._runtime
        kind, number = record.kind, record.call_id
        if kind == envelope.REDIRECT:
            runtime.relay.on_redirect(sender, record)
        elif kind == envelope.ASK:
            runtime.relay.on_ask(sender, record)
        elif kind == envelope.DROP:
            runtime.relay.on_drop(sender, number)
        elif kind == envelope.TAKEN:
            runtime.spread.on_taken(number)
        else:
            try:
                runtime.spread.on_retry(number)
            except errors.MooError as error:
                runtime.values.send_error(sender, number, error)
