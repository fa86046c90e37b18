# SPDX-License-Identifier: MIT
"""An operation of a learner group that may still be under way."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, overload

from mooactor.errors import ActorUnavailable, CallTimeout, PeerLost
from mooactor.learner.children import is_child, refuse_in_child
from mooactor.process import checks
from mooactor.process.loops import blocks_a_loop, refuse_to_block
from mooactor.tensors import collective
from mooactor.tensors.collective import Outcome, SharedWork

T = TypeVar("T")

# The time for which C keeps the thread before Python looks for signals.
_SLICE_S = 0.1


class TakenOut(RuntimeError):
    """This member's host is not in the group any more: see `Work.wait`."""


class Member(NamedTuple):
    """One member of a group, in one of its epochs."""

    rank: int
    pid: int
    process_id: int
    host: str  # its name, as `moo.hosts` has it


class Queue(Protocol):
    """The queue that a work is in."""

    def start(self) -> None:
        """Run it in a background thread from now on."""

    def bring(self, work: Any) -> None:
        """Bring the results of a work that has ended to their place."""


class Work(Generic[T]):
    """An operation that was queued; `wait` for it, or `start` it.

    Ordering: the operations of a group run in the order queued. Without a
    background thread each runs inside `wait`, in the thread that called it, which is
    quickest; `start` hands them to the group's own thread, so that they overlap with
    this thread's other work.

    Neither dropping a work nor cancelling an `await` of it cancels the operation:
    the other members count on it. It can be waited for again.
    """

    __slots__ = (
        *("_group", "_label", "_pid"),
        *("_queued", "_result", "_work"),
    )

    def __init__(
        self,
        group: str,
        label: str,
        work: SharedWork,
        result: T,
        queued: Queue,
        pid: int,
    ) -> None:
        """`pid`: of the process that queued it."""
        self._label, self._group, self._pid = label, group, pid
        self._work, self._result, self._queued = work, result, queued

    def start(self) -> Work[T]:
        """Run this and all later operations in the group's background thread.

        Raises:
          RuntimeError: this process has left the group.
        """
        refuse_in_child(self._pid, self._group)
        self._queued.start()
        return self

    def wait(self, timeout: float | None = None) -> None:
        """Return when the operation has succeeded.

        Args:
          timeout: seconds. A late operation stays queued or under way: wait again. The
            group's own timeout ends it for all members.

        Raises:
          PeerLost: a member died, or left, or the connection with it failed. All
            others get the same error.
          ActorUnavailable: no transport leads to the other hosts.
          CallTimeout: `timeout` is over, or a member did not come within the
            group's timeout; the message says which.
          ValueError: the members did not make the same call.
          RuntimeError: on a running event loop, which it would freeze. This process has
            left the group. Or this host was taken out of the group, because its
            connections with another host had failed three times in a minute: leave, and
            join again.
        """
        if blocks_a_loop() and not self.done():
            refuse_to_block(self._label, "`await work`")
        timeout = checks.seconds("timeout", timeout)
        until = None if timeout is None else time.monotonic() + timeout
        try:  # C refuses, too; to ask before takes as long as the rest of this
            outcome = None if until is not None else self._work.wait(_SLICE_S)
            outcome = self._outcome(until) if outcome is None else outcome
        except RuntimeError:
            refuse_in_child(self._pid, self._group)
            raise
        self._conclude(outcome)

    def _conclude(self, outcome: Outcome) -> None:
        if outcome.status:
            raise failure(self._what(), outcome)
        self._queued.bring(self._work)

    def result(self, timeout: float | None = None) -> T:
        """Wait, and return the result tensors: those given, or `out`."""
        self.wait(timeout)
        return self._result

    @property
    def participants(self) -> list[Member]:
        """The members whose inputs are in the result, in rank order. In a group with
        ``on_loss="finish"`` they can be fewer than there were when it began. Of
        tensors of several types, which are reduced one type after the other, it is
        those of the last type.

        Raises:
          RuntimeError: it is not done, or has failed.
        """
        found = self._work.members() if self.done() else []
        if not found:
            raise RuntimeError(f"{self._what()} has no result: wait for it first")
        return [Member(rank, *member) for rank, member in enumerate(found)]

    def done(self) -> bool:
        """Whether it has ended, well or not. Never blocks."""
        refuse_in_child(self._pid, self._group)
        return self._work.done()

    def __await__(self) -> Generator[Any, None, T]:
        if not self.done():  # what has ended needs no thread, nor the membership
            self.start()
        return self._awaited().__await__()

    async def _awaited(self) -> T:
        import asyncio

        given_up = threading.Event()
        try:
            await asyncio.to_thread(self._wait_unless, given_up)
        finally:
            given_up.set()
        return self._result

    def _wait_unless(self, given_up: threading.Event) -> None:
        """Wait in a thread of the event loop. The end of the loop waits for this
        thread, so after a cancelled await it returns within a slice of time."""
        outcome = self._outcome(None, given_up)
        if outcome is not None:
            self._conclude(outcome)

    @overload
    def _outcome(self, until: float | None) -> Outcome: ...

    @overload
    def _outcome(
        self, until: float | None, given_up: threading.Event
    ) -> Outcome | None: ...

    def _outcome(
        self, until: float | None, given_up: threading.Event | None = None
    ) -> Outcome | None:
        while given_up is None or not given_up.is_set():
            left = _SLICE_S if until is None else until - time.monotonic()
            outcome = self._work.wait(min(_SLICE_S, max(0.0, left)))
            if outcome is not None:
                return outcome
            if until is not None and time.monotonic() >= until:
                raise CallTimeout(
                    f"{self._label} was not done in time; it goes on: wait again"
                )
        return None

    def _what(self) -> str:
        return f"{self._label} of learner group {self._group!r}"

    def __repr__(self) -> str:
        state = "done" if self._work.done() else "under way"
        if is_child(self._pid):
            state = "of the parent process"
        return f"<Work {self._label} of {self._group!r}, {state}>"


def failure(what: str, outcome: Outcome) -> Exception:
    """The exception for an operation, described by `what`, with that outcome."""
    status = outcome.status
    if status == collective.EPEER:
        return _lost(what, outcome)
    if status == collective.ETIMEOUT:
        late = outcome.text or f"{_who(outcome)} did not take part"
        return CallTimeout(f"{what} took too long: {late}")
    if status == collective.EMISMATCH:
        return ValueError(f"the members disagree in {what}: {outcome.text}")
    if status == collective.EUNREACHABLE:
        why = outcome.text or "no transport is allowed by all members"
        return ActorUnavailable(
            f"{what}, whose members are on several hosts: {why}; see "
            "`mooactor doctor` and MOOACTOR_TRANSPORT"
        )
    if status == collective.ECLOSED:
        if outcome.text:
            return TakenOut(outcome.text)
        return RuntimeError(f"this process left during {what}")
    return ValueError(
        f"{what} does not fit the group, whose size may have changed: read "
        "group.size again"
    )


def _lost(what: str, outcome: Outcome) -> PeerLost:
    verb = "left" if outcome.left else "died"
    story = outcome.text or f"{_who(outcome)} {verb}"
    return PeerLost(
        f"{story} during {what}; the others get this error too and can go "
        "on in the next epoch",
        rank=outcome.rank,
        epoch=outcome.epoch,
    )


def _who(outcome: Outcome) -> str:
    return f"rank {outcome.rank} (process {outcome.pid}) of epoch {outcome.epoch}"
