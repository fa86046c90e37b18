# SPDX-License-Identifier: MIT
"""One transfer from another host, and the lane in which it is; see `inbound`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter

from mooactor import errors
from mooactor.process.objects.future import Reply
from mooactor.tensors.fetches import Fetch
from mooactor.tensors.plane import owner_of


class Lane:
    """Transfers that share a bound.

    `until_release`: they count until then, because arrived data is of no use before its
    turn; otherwise until all of their data is there.
    """

    __slots__ = ("bound", "until_release", "taken", "flying", "waiting")

    def __init__(self, bound: int, until_release: bool) -> None:
        self.bound = bound
        self.until_release = until_release
        self.taken = 0  # bytes
        self.flying = 0  # transfers
        self.waiting: deque[Transfer] = deque()


class Transfer:
    """The data of one record. `error` is its failure, once it is `done`."""

    __slots__ = (
        "reply",
        "then",
        "lane",
        "cost",
        "owners",
        "arrived",
        "begun",
        "descriptors",
        "fetches",
        "tags",
        "until",
        "failure",
        "done",
        "told",
        "error",
    )

    def __init__(self, reply: Reply, then: Callable[[], None], lane: Lane) -> None:
        self.reply = reply
        self.then = then
        self.lane = lane
        # A single transfer of any size fits.
        self.cost = min(reply.size(), lane.bound // 2)
        self.owners = [owner_of(descriptor) for descriptor in reply.descriptors]
        self.arrived = perf_counter()
        self.begun = False  # it is counted
        self.descriptors = list(reply.descriptors)
        self.fetches: list[Fetch] = []  # of these, the last one perhaps not begun
        self.tags: dict[int, Fetch] = {}  # those under way
        self.until = 0.0  # when it has waited too long for memory
        self.failure: BaseException | None = None  # the first; it is being ended
        self.done = False
        self.told = False
        self.error: BaseException | None = None

    @property
    def lost(self) -> bool:
        """Whether its sender died or was cut off, so that its data cannot come. Only
        news of a death tells the two apart."""
        return isinstance(self.error, errors.ActorDied)

    def cut_off(
        self,
        what: str,
        *,
        before: str = "",
        after: str = "",
        delivered: bool | None = None,
    ) -> errors.ActorUnavailable:
        """The error of one that is lost, when no death was told of. `what` was under
        way; `before` and `after` are the meaning for the call."""
        broke = f"the connection broke while {what} under way ({self.error})"
        return errors.ActorUnavailable(before + broke + after, delivered=delivered)
