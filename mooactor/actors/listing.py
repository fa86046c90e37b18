# SPDX-License-Identifier: MIT
"""`actors`: the present actors of the session."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

from mooactor import errors
from mooactor.actors.spawn import ensure_runtime


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
