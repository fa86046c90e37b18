# SPDX-License-Identifier: MIT
"""Messages in: each record goes to the part of the runtime that handles its kind.

The thread that leads the poller calls `Dispatch.message`, so the methods named ``on_…``
run one at a time, in order. There are two exceptions, both rare: a signal handler or a
finalizer that waits for a call while its thread dispatches, and a leader that is
overtaken because it stays away. A handler of records may then run again, or beside
itself, for the same record. It may also be cut short at any line, by an exception of a
signal handler, and run again afterwards. So every handler can be run twice:

* A call enters the mailbox by emptying an iterator that holds it once (`Job.entry`), an
  item of a stream its channel in the same way; a reply ends a future, of which the
  first end counts.
* A handler keeps its results for a record in the record's ``memo``. A hold that is lent
  or given back has a number, and does nothing the second time.
* Credit given twice lets a producer get further ahead; a value sent twice is held
  longer than need be.
"""

from __future__ import annotations

import math
import sys
import traceback
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

from mooactor import errors
from mooactor.control import envelope, script
from mooactor.control.complaints import was_interrupted
from mooactor.control.messenger import Messenger
from mooactor.process.calls import Server

if TYPE_CHECKING:
    from mooactor.process.runtime import Runtime


#: Of a record that signal handlers cut short. Each costs the program an exception that
#: it has asked for. So often comes only one that is no handler's.
_MOST_TRIES = 100


Handler = Callable[[envelope.Record], None]


class Dispatch:
    """Hands the records of each message on, by their kinds.

    A record of a kind without a handler is for an actor. A process that will have one
    keeps it until then; see `expect`. Elsewhere it is dropped.
    """

    def __init__(
        self,
        key: bytes,
        messenger: Messenger,
        handlers: dict[int, Handler],
        after: Callable[[], None],
        admit: Callable[[int, int], bool] | None = None,
    ) -> None:
        """`after`: called when a message was handled. `admit`: see `read_records`."""
        self.dropped = 0  # malformed or foreign messages, so far
        self._admit = admit
        self._key = key
        self._messenger = messenger
        self._handlers = handlers
        self._after = after
        self._open: dict[int, deque[envelope.Record]] = {}  # by serial
        self._early: deque[envelope.Record] | None = None
        self._unsaid = 0
        self._dropped_said = -1.0

    def expect(self) -> None:
        """This process will have more handlers: keep what comes for them."""
        self._early = deque()

    def begin(self, handlers: dict[int, Handler]) -> None:
        """Here they are. They get first what was kept, in the order received. No other
        thread may dispatch meanwhile."""
        early, self._early = self._early or (), None
        self._handlers.update(handlers)
        for record in early:
            if not self._messenger.is_gone(record.sender):
                self._try(record, deque((record,)))
        self._after()

    def message(self, serial: int, message: bytes) -> None:
        """Act on one message; a malformed one is reported and dropped."""
        records = self._open.get(serial)
        if records is None:
            records = self._open.setdefault(serial, self._parsed(message))
            if not self._messenger.holds(serial):
                # Somebody else has dispatched it while we looked at it.
                self._open.pop(serial, None)
                return
        while records:
            record = records[0]
            self._try(record, records)
            if records and records[0] is record:  # with no call in between
                del records[0]
        self._after()

    def done_with(self, serial: int) -> None:
        """The message was taken from the queue: it does not come again."""
        self._open.pop(serial, None)
        if self._open:
            # Of one that a signal handler interrupted just now, it was not said.
            for other in list(self._open):
                if not self._messenger.holds(other):
                    self._open.pop(other, None)

    def _parsed(self, message: bytes) -> deque[envelope.Record]:
        records: deque[envelope.Record] = deque()
        try:
            envelope.read_records(message, self._key, records, self._admit)
        except envelope.LateMessage:
            pass  # its loss was told with the break of its connection
        except (
            envelope.MalformedMessage,
            errors.AuthError,
            errors.VersionMismatch,
        ) as error:
            self._report_dropped(error)
        return records

    def _try(self, record: envelope.Record, records: deque[envelope.Record]) -> None:
        try:
            handler = self._handlers.get(record.kind)
            if handler is not None:
                handler(record)
            elif self._early is not None:
                self._early.append(record)
        except envelope.MalformedMessage as error:
            self._report_dropped(error)
            records.clear()  # the rest of a malformed message is not trusted
        except Exception as error:
            memo = record.memo
            memo["tries"] = memo.get("tries", 0) + 1
            if was_interrupted(error) and memo["tries"] < _MOST_TRIES:
                raise  # and the record stays
            # From a peer with the key, so a bug in it or in us: report it and live on.
            print("mooactor: a message could not be handled:", file=sys.stderr)
            traceback.print_exc()
            records.clear()

    def _report_dropped(self, error: errors.MooError) -> None:
        """Report it, but once a second at most: a stranger may send a flood."""
        self.dropped += 1
        self._unsaid += 1
        now = perf_counter()
        if now - self._dropped_said > 1.0:
            self._dropped_said = now
            count = f"{self._unsaid} messages" if self._unsaid > 1 else "a message"
            print(f"mooactor: dropped {count}: {error}", file=sys.stderr)
            self._unsaid = 0


def handlers_of_every_process(runtime: Runtime) -> dict[int, Handler]:
    """By kind of record, those for what the driver and each actor's process take;
    `envelope` has a table of the kinds."""
    return {
        envelope.REPLY: runtime.caller.on_reply,
        envelope.FORWARD: runtime.handovers.on_forward,
        envelope.FETCH: runtime.handovers.on_fetch,
        envelope.BORROW: runtime.objects.on_borrow,
        envelope.RELEASE: runtime.objects.on_release,
        envelope.PROBE: runtime.deadlocks.on_probe,
        envelope.VALUE: runtime.values.on_value,
        envelope.REDIRECT: runtime.relay.on_redirect,
        envelope.ASK: runtime.relay.on_ask,
        envelope.TAKEN: runtime.broadcaster.on_taken,
        envelope.RETRY: runtime.handovers.on_retry,
        envelope.DROP: runtime.relay.on_drop,
        envelope.PULL: runtime.results.on_pull,
        envelope.AUDIT: runtime.audit.on_audit,
        envelope.UNSURE: runtime.audit.on_unsure,
        envelope.WATCH: lambda record: runtime.locator.meet(record.call_id),
        envelope.BROKE: runtime.breaks.on_record,
        envelope.GOAWAY: runtime.deaths.on_goaway,
        envelope.KNOWS: lambda r: script.on_knows(r.sender, bytes(r.payload)),
        envelope.PROBED: lambda r: runtime.plane.hear(r.sender, bytes(r.payload)),
    }


def handlers_of_an_actor(process_id: int, server: Server) -> dict[int, Handler]:
    """For what only an actor's process takes besides, by its `server`."""

    def on_lost(record: envelope.Record) -> None:
        if record.sender == process_id:
            server.on_process_lost(record.call_id)

    def on_came(record: envelope.Record) -> None:
        if record.sender == process_id:
            server.on_value()

    return {
        envelope.CALL: server.on_call,
        envelope.CANCEL: lambda r: server.on_cancel(r.sender, r.call_id),
        envelope.CREDIT: lambda r: server.on_credit(r.sender, r.call_id, _items(r)),
        envelope.STOP: lambda r: server.on_stop(r.sender),
        envelope.LOST: on_lost,
        envelope.CAME: on_came,
    }


def _items(record: envelope.Record) -> int:
    """The number that a CREDIT has.

    Raises:
      MalformedMessage: it is none.
    """
    if not math.isfinite(record.value):
        raise envelope.MalformedMessage(f"a CREDIT of {record.value} items")
    return int(record.value)
