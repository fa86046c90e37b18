# SPDX-License-Identifier: MIT
"""Messages in: each record goes to the part of the runtime that it is meant for.

Whichever thread leads the pump calls `Dispatch.message`, so the methods named ``on_…``
run one at a time.
"""

from __future__ import annotations

import sys
import traceback
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from mooactor import errors
from mooactor.control import envelope
from mooactor.process.outcome import Outcome
from mooactor.process.values import number_of, pair_of

if TYPE_CHECKING:
    from mooactor.process.runtime import Runtime


class Server(Protocol):
    """The callee's side, in processes that hold an actor."""

    def on_call(self, sender: int, record: envelope.Record) -> None: ...
    def on_cancel(self, sender: int, call_id: int) -> None: ...
    def on_credit(self, sender: int, call_id: int, items: int) -> None: ...
    def on_stop(self, sender: int) -> None: ...
    def on_forward(self, sender: int, call_id: int, pair: bytes) -> bool: ...
    def on_process_lost(self, process_id: int) -> None: ...
    def has_ready(self) -> bool: ...
    def awaited_by(self, sender: int, call_id: int) -> list[tuple[str, Outcome]]: ...


class Dispatch:
    """Hands the records of each message on."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._dropped = 0
        self._dropped_said = -1.0

    def message(self, message: bytes) -> None:
        """Act on one message; a malformed one is reported and dropped."""
        try:
            sender = envelope.open_envelope(message, self._runtime.key)
            for record in envelope.records(message):
                self._on_record(sender, record)
        except (
            envelope.MalformedMessage,
            errors.AuthError,
            errors.VersionMismatch,
        ) as error:
            self._runtime.messenger.resynchronize()
            self._report_dropped(error)
        except Exception:
            # From a peer with the key, so a bug in it or in us: say so and live on.
            print("mooactor: a message could not be handled:", file=sys.stderr)
            traceback.print_exc()

    def _report_dropped(self, error: errors.MooError) -> None:
        """Say so, but once a second at most: a stranger may send a flood."""
        self._dropped += 1
        now = perf_counter()
        if now - self._dropped_said > 1.0:
            self._dropped_said = now
            count = f"{self._dropped} messages" if self._dropped > 1 else "a message"
            print(f"mooactor: dropped {count}: {error}", file=sys.stderr)
            self._dropped = 0

    def _on_record(self, sender: int, record: envelope.Record) -> None:
        kind, runtime = record.kind, self._runtime
        if kind == envelope.REPLY:
            runtime.caller.on_reply(record)
        elif kind == envelope.CALL and runtime.server is not None:
            runtime.server.on_call(sender, record)
        else:
            self._on_control(sender, record)

    def _on_control(self, sender: int, record: envelope.Record) -> None:
        runtime = self._runtime
        kind, number, server = record.kind, record.call_id, runtime.server
        if kind == envelope.VALUE:
            runtime.values.on_value(sender, record)
        elif kind == envelope.FORWARD:
            runtime.values.on_forward(sender, record)
        elif kind == envelope.FETCH:
            runtime.values.on_fetch(number, *pair_of(record.payload))
        elif kind == envelope.BORROW:
            runtime.objects.borrow(number, number_of(record.payload), 1)
        elif kind == envelope.RELEASE:
            runtime.objects.borrow(number, sender, -1)
        elif kind >= envelope.REDIRECT:
            self._on_spread(sender, record)
        elif kind == envelope.PROBE:
            runtime.deadlocks.on_probe(sender, number, bytes(record.payload))
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
