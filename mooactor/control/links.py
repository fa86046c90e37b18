# SPDX-License-Identifier: MIT
"""A caller's side of one actor: where it runs now, and how many calls it owes us."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mooactor.errors import (
    ActorDied,
    ActorRestarted,
    ActorUnavailable,
    Cause,
    MooError,
    PlacementError,
)

if TYPE_CHECKING:
    from mooactor.control.messenger import Peer

DEFAULT_MAX_PENDING = 1024


class Link:
    """One per (process, actor). It follows the actor from incarnation to incarnation.

    ``calls`` has the ids of calls sent and not answered.
    """

    __slots__ = (
        "actor_id",
        "incarnation",
        "label",
        "limit",
        "calls",
        "peer",
        "cause",
        "concurrency",
        "has_one_thread",
        "overflow",
        "foreign",
    )

    def __init__(self, actor_id: int, incarnation: int, label: str) -> None:
        self.actor_id = actor_id
        self.incarnation = incarnation
        self.label = label
        self.limit = DEFAULT_MAX_PENDING
        self.calls: set[int] = set()
        self.peer: Peer | None = None
        self.cause: Cause | None = None  # set once it is gone for good
        self.concurrency = 1 << 30  # calls that it runs at once, once that is known
        self.has_one_thread = False  # for its sync methods: it is an async actor
        self.overflow = "wait"
        self.foreign = False

    @classmethod
    def to_nowhere(cls, actor_id: int, incarnation: int, label: str) -> Link:
        """The link to an actor of another session: no call is ever sent over it."""
        link = cls(actor_id, incarnation, label)
        link.cause = Cause("unknown")
        link.foreign = True
        return link

    @property
    def outstanding(self) -> int:
        return len(self.calls)

    @property
    def process_id(self) -> int:
        return self.actor_id + self.incarnation

    def gone(self, delivered: bool | None = False) -> MooError:
        """The error of a call to an actor that is gone for good, or never was."""
        assert self.cause is not None
        if self.foreign:
            message = (
                f"{self.label} cannot be called: it belongs to another session, an "
                "earlier session of this program or another program's; spawn it in "
                "this one"
            )
            return ActorUnavailable(message, delivered=False)
        if self.cause.kind == "unknown":
            message = f"{self.label} cannot be called: {self.cause}"
            return ActorUnavailable(message, delivered=False)
        exception = self.cause.exception
        if isinstance(exception, PlacementError) and exception.turned_away:
            return PlacementError(str(exception), delivered=False, turned_away=True)
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
