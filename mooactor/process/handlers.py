# SPDX-License-Identifier: MIT
"""Which part of a process takes which kind of record.

`Dispatch` calls a handler with each record of its kind, in the thread that leads the
poller; its module says what every handler must bear. `envelope` has a table of the
kinds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mooactor.control import envelope
from mooactor.process.calls import Server
from mooactor.process.dispatch import Handler

if TYPE_CHECKING:
    from mooactor.process.runtime import Runtime


def of_every_process(runtime: Runtime) -> dict[int, Handler]:
    """For what the driver and each actor's process take."""
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
        envelope.AUDIT: runtime.audit.on_record,
        envelope.HOLDS: runtime.audit.on_record,
        **dict.fromkeys(
            (envelope.UNSURE, envelope.COUNT, envelope.COUNTED),
            runtime.recounts.on_record,
        ),
        envelope.WATCH: lambda record: runtime.locator.meet(record.call_id),
        envelope.BROKE: runtime.breaks.on_record,
        envelope.GOAWAY: runtime.deaths.on_goaway,
        envelope.LENT: runtime.payloads.on_lent,
        envelope.PROBED: lambda r: runtime.plane.hear(r.sender, bytes(r.payload)),
    }


def of_an_actor(process_id: int, server: Server) -> dict[int, Handler]:
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
