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
* A handler keeps its results for a record in the record's ``memo``. A reference that is
  lent or given back has its count there, which is gone in the step that counts it.
* Credit given twice lets a producer get further ahead; a value sent twice is held
  longer than need be.
"""

from __future__ import annotations

import sys
import traceback
from collections import deque
from collections.abc import Callable
from time import perf_counter

from mooactor import errors
from mooactor.control import envelope
from mooactor.control.interrupts import was_interrupted
from mooactor.control.messenger import Messenger

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
            try:
                record = records[0]
            except IndexError:
                break
            self._try(record, records)
            try:
                records.remove(record)
            except ValueError:
                pass
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
