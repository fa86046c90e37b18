# SPDX-License-Identifier: MIT
"""A caller's side of one actor: where it runs now, and how many calls it owes us."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mooactor.errors import ActorDied, ActorRestarted, Cause

if TYPE_CHECKING:
    from mooactor.control.messenger import Peer

DEFAULT_MAX_PENDING = 1024


class Link:
    """One per (process, actor). It follows the actor from incarnation to incarnation.

    ``outstanding`` counts calls sent and not answered; the pump's thread lowers it.
    """

    __slots__ = (
        "actor_id",
        "incarnation",
        "label",
        "limit",
        "outstanding",
        "peer",
        "cause",
        "serial",
        "overflow",
    )

    def __init__(self, actor_id: int, incarnation: int, label: str) -> None:
        self.actor_id = actor_id
        self.incarnation = incarnation
        self.label = label
        self.limit = DEFAULT_MAX_PENDING
        self.outstanding = 0
        self.peer: Peer | None = None
        self.cause: Cause | None = None  # set once it is gone for good
        self.serial = True
        self.overflow = "wait"

    @property
    def process_id(self) -> int:
        return self.actor_id + self.incarnation

    def gone(self, delivered: bool | None = False) -> ActorDied:
        """The error of a call to an actor that is gone for good."""
        assert self.cause is not None
        return _died(self.label, self.cause, delivered)

    def restarted(self, cause: Cause, delivered: bool | None) -> ActorRestarted:
        """The error of a call that was under way when the actor died."""
        message = (
            f"{self.label} died during the call ({cause}) and was restarted; "
            "call again, or use .options(retries=…) if running twice is harmless"
        )
        return ActorRestarted(message + _tail(cause), cause=cause, delivered=delivered)


def _died(label: str, cause: Cause, delivered: bool | None) -> ActorDied:
    message = f"{label} is dead: {cause}"
    error = ActorDied(message + _tail(cause), cause=cause, delivered=delivered)
    if cause.exception is not None:
        error.__cause__ = cause.exception
    return error


def _tail(cause: Cause) -> str:
    if not cause.stderr:
        return ""
    return "\n  its last lines on stderr:\n    " + "\n    ".join(cause.stderr)
