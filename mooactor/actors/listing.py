# SPDX-License-Identifier: MIT
"""The present actors of the session: `actors` lists them, `lookup` finds one."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

from mooactor import errors
from mooactor.actors.session import ensure_runtime
from mooactor.host.fields import LONGEST_S
from mooactor.process import checks
from mooactor.process.loops import refuse_to_block


@dataclass(frozen=True)
class ActorInfo:
    """One actor of the session, as it was when `actors` was called.

    ``label`` is its class and name as errors have it; ``pid`` is None between two
    processes; ``state`` is ``"starting"``, ``"running"`` or ``"waiting to restart"``.
    ``owner`` is the label of the actor that spawned it and that it ends with, None if
    it belongs to the driver or, `detached`, to the session.
    """

    id: int
    label: str
    name: str | None
    pid: int | None
    state: str
    restarts: int
    owner: str | None
    detached: bool

    @property
    def handle(self) -> Any:
        """The actor's handle.

        Raises:
          ActorUnavailable: it is over by now.
        """
        found = ensure_runtime().agent.ask(op="handle", id=self.id)["value"]
        if not found:
            raise errors.ActorUnavailable(
                f"{self.label} has ended and has no handle any more; spawn it again"
            )
        return pickle.loads(found)


def actors() -> list[ActorInfo]:
    """The actors of this session that are not over, in the order they were spawned.

    Raises:
      ActorUnavailable: the session is over.
    """
    rows = ensure_runtime().agent.ask(op="list")["value"]
    return [_info(row) for row in rows]


def _info(row: dict[str, Any]) -> ActorInfo:
    return ActorInfo(
        int(row["id"], 16),
        row["label"],
        row["name"],
        row["pid"],
        row["state"],
        row["incarnation"],
        row["owner"],
        row["detached"],
    )


def lookup(name: str, timeout: float | None = 0.0) -> Any:
    """The handle of the actor spawned under `name`.

    Args:
      timeout: seconds to wait for it to appear; None: for ever.

    Raises:
      ActorUnavailable: there is none of that name.
      TypeError, ValueError: the name is no string, or the timeout no time.
      RuntimeError: with a timeout on a running event loop, which it would freeze.
    """
    name, timeout = checks.name("name", name), checks.seconds("timeout", timeout)
    if timeout is not None:
        timeout = min(max(timeout, 0.0), LONGEST_S)
    if timeout is None or timeout > 0:
        instead = "`await asyncio.to_thread(moo.lookup, name, timeout)`"
        refuse_to_block(f"an actor named {name!r}", instead)
    wait_s = None if timeout is None else timeout + 60.0
    agent = ensure_runtime().agent
    reply = agent.ask(wait_s, op="lookup", name=name, timeout=timeout)
    if reply["value"] is None:
        raise errors.ActorUnavailable(
            f"no actor is named {name!r}"
            + (f" after {timeout} s" if timeout else "; lookup can wait: timeout=…")
        )
    return pickle.loads(reply["value"])
