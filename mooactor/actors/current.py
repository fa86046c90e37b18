# SPDX-License-Identifier: MIT
"""`current`: facts for a method about the call that it serves."""

from __future__ import annotations

import dataclasses
from time import perf_counter
from typing import Any

from mooactor import errors
from mooactor.actors.handle import Handle
from mooactor.process.actor.worker import Worker
from mooactor.process.calls import CallContext, context
from mooactor.process.current import current_runtime
from mooactor.process.runtime import Runtime


@dataclasses.dataclass(frozen=True)
class Current:
    """The call that runs here."""

    _runtime: Runtime
    _context: CallContext

    @property
    def handle(self) -> Any:
        """This actor's own handle, to give to others."""
        worker = self._worker()
        runtime = self._runtime
        incarnation = runtime.process_id - runtime.actor_id
        return Handle(
            runtime.actor_id,
            incarnation,
            worker.label,
            worker.interface,
            runtime.session_mark,
        )

    def _worker(self) -> Worker:
        server = self._runtime.server
        if not isinstance(server, Worker):
            raise errors.InternalError("a call runs in a process without an actor")
        return server

    @property
    def name(self) -> str:
        """The actor's label: its class, and its name if it has one."""
        return self._context.actor_label

    @property
    def caller(self) -> str:
        """The calling process, as sixteen hexadecimal digits."""
        return f"{self._context.caller:016x}"

    @property
    def deadline(self) -> float | None:
        """Seconds left for this call, or None without a deadline."""
        deadline = self._context.deadline
        return None if deadline is None else deadline - perf_counter()

    @property
    def cancelled(self) -> bool:
        """Whether the call was given up: cancelled, past its deadline, or its caller
        died. Cheap enough for a loop."""
        self._runtime.poller.try_drain()
        deadline = self._context.deadline
        late = deadline is not None and perf_counter() > deadline
        return self._context.cancelled or late


def current() -> Current:
    """The call that runs here.

    Raises:
      ActorUnavailable: this is no method of an actor.
    """
    call = context.get()
    if call is None:
        raise errors.ActorUnavailable(
            "moo.current() is for methods of actors; no call runs here"
        )
    return Current(current_runtime(), call)
