# SPDX-License-Identifier: MIT
"""The figures of one process, for `moo.stats()` and for the agent.

They are read from any thread and without a lock: each was right at some moment of the
call. After `Runtime.close` those that need the sockets or the data plane are empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mooactor.control.lifeline import Message
from mooactor.process.calls import Server
from mooactor.process.system import resident_bytes
from mooactor.tensors.public import cuda_statistics

if TYPE_CHECKING:
    from mooactor.process.runtime import Runtime


def of_runtime(runtime: Runtime) -> dict[str, Any]:
    """See `Runtime.statistics`."""
    runtime.objects.sweep()
    return {
        "calls_pending": len(runtime.caller),
        "values_pending": len(runtime.values),
        "arriving": 0 if runtime.inbound is None else len(runtime.inbound),
        "objects": len(runtime.objects),
        "relayed": len(runtime.broadcaster)
        + len(runtime.relay)
        + len(runtime.handovers),
        "links": len(runtime.links),
        "dropped": runtime.messages.dropped + runtime.epochs.late,
        "strangers": 0 if runtime.closed else runtime.messenger.strangers,
        "transport": str(runtime.network),
        "memory": {} if runtime.closed else runtime.plane.statistics(),
        "cuda": cuda_statistics(),
        "peers": [] if runtime.closed else _peers(runtime),
    }


def _peers(runtime: Runtime) -> list[dict[str, Any]]:
    labels = runtime.links.labels()
    rows = []
    for process_id in runtime.messenger.known():
        transport, why = runtime.plane.route(process_id)
        sent, fetched = runtime.plane.traffic(process_id)
        rows.append(
            {
                "process": f"{process_id:016x}",
                "actor": labels.get(process_id),
                "transport": transport,
                "why": why,
                "bytes_sent": sent,
                "bytes_fetched": fetched,
            }
        )
    return rows


def of_actor(server: Server) -> Message:
    """The facts that this process alone knows of itself, for the agent."""
    return {"mailbox": server.queued(), "memory": resident_bytes()}
