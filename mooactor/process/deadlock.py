# SPDX-License-Identifier: MIT
"""Finding cycles of blocking calls among actors that run one method at a time.

Two nets. A plain (blocking) call carries the chain of actors that wait for it; a call
back into the chain is refused before it is sent. What the chain cannot show (two
actors that call each other at the same moment, a wait for an older Ref) is found by
edge chasing (Chandy, Misra, Haas: Distributed Deadlock Detection, 1983, AND model):
who has waited for a while sends a probe to the actor it waits for; an actor that waits
itself passes it on; a probe that comes home has walked a cycle.
"""

from __future__ import annotations

import struct
from time import perf_counter
from typing import TYPE_CHECKING

from mooactor.control import envelope
from mooactor.errors import DeadlockError
from mooactor.process.calls import CallContext

if TYPE_CHECKING:
    from mooactor.process.links import Link
    from mooactor.process.outcome import Outcome
    from mooactor.process.runtime import Runtime

_FIRST_PROBE_S = 0.1
_NEXT_PROBE_S = 0.4
_MAX_HOPS = 64
_HEAD = struct.Struct("<QQ")


class DeadlockDetector:
    """One per process; of use where a serial actor lives."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._wait_id = 0
        self._waiting: tuple[int, Outcome, str] | None = None

    def refuse_cycle(self, link: Link, caller: CallContext) -> None:
        """Raise if the callee already waits for this call.

        Raises:
          DeadlockError: nothing was sent.
        """
        if not link.serial:
            return
        if link.actor_id == caller.actor_id:
            raise DeadlockError(
                f"{caller.actor_label} calls itself and waits; it runs one method at "
                "a time. Call the method on self, or use .remote() or .tell()",
                delivered=False,
                cycle=(caller.actor_label,),
            )
        if link.actor_id in caller.chain:
            raise DeadlockError(
                f"{caller.actor_label} calls {link.label}, which waits for "
                f"{caller.actor_label}.{caller.method}; use .remote() or .tell() on "
                "one side, or make one of them async",
                delivered=False,
                cycle=(link.label, caller.actor_label),
            )

    def wait(
        self, outcome: Outcome, deadline: float | None, caller: CallContext
    ) -> bool:
        """Wait inside a serial actor's method, probing once that takes long."""
        runtime = self._runtime
        step = _FIRST_PROBE_S
        self._wait_id += 1
        previous = self._waiting
        # Labels need not be unique; the id in front makes a hop so.
        hop = f"{caller.actor_id:x} {caller.actor_label}"
        self._waiting = (self._wait_id, outcome, hop)
        try:
            while True:
                until = perf_counter() + step
                if deadline is not None:
                    until = min(until, deadline)
                if runtime.wait_plainly(outcome, until):
                    return True
                if deadline is not None and perf_counter() >= deadline:
                    return False
                step = _NEXT_PROBE_S
                self._probe(outcome, hop, runtime.process_id, self._wait_id, [])
        finally:
            self._waiting = previous

    def _probe(
        self, outcome: Outcome, hop: str, initiator: int, wait_id: int, path: list[str]
    ) -> None:
        """Ask the actor that `outcome` is to come from whom it waits for."""
        link = outcome.link
        if link is None or hop in path or len(path) >= _MAX_HOPS:
            return
        hops = "\0".join([*path, hop])
        payload = _HEAD.pack(initiator, wait_id) + hops.encode()
        self._runtime.post(link.process_id, envelope.PROBE, outcome.call_id, payload)

    def on_probe(self, sender: int, call_id: int, payload: bytes) -> None:
        """Somebody waits, directly or not, for a call that `sender` made here."""
        if len(payload) < _HEAD.size:
            raise envelope.MalformedMessage("a probe is cut short")
        initiator, wait_id = _HEAD.unpack_from(payload)
        path = payload[_HEAD.size :].decode(errors="replace").split("\0")
        waiting = self._waiting
        if initiator == self._runtime.process_id:
            if waiting is not None and wait_id == waiting[0]:
                self._found(waiting[1], path)
        elif waiting is not None:
            # A serial actor: whatever it waits for holds up every call to it.
            self._probe(waiting[1], waiting[2], initiator, wait_id, path)
        elif self._runtime.server is not None:
            for hop, outcome in self._runtime.server.awaited_by(sender, call_id):
                self._probe(outcome, hop, initiator, wait_id, path)

    def _found(self, outcome: Outcome, path: list[str]) -> None:
        labels = tuple(hop.partition(" ")[2] for hop in path)
        cycle = " -> ".join([*labels, labels[0]])
        error = DeadlockError(
            f"a cycle of calls that wait for each other: {cycle}; use .remote() or "
            ".tell() at one point of it",
            cycle=labels,
        )
        if outcome.set_error(error):
            self._runtime.caller.abandon(outcome)
