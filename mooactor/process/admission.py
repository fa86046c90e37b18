# SPDX-License-Identifier: MIT
"""The bound on the calls of this process that are outstanding at an actor.

At the bound (`max_pending`) a call waits until one of them has ended. It does not if
that blocked an event loop, if the actor has ``overflow="raise"``, or if they would end
only after the method that makes this call: those of an actor to itself, and those in a
cycle of actors that wait for each other (see `deadlock`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING

from mooactor import errors
from mooactor.control.links import Link
from mooactor.process.calls import CallContext, context
from mooactor.process.deadlock import WaitForRoom
from mooactor.process.loops import blocks_a_loop
from mooactor.process.objects.future import Future

if TYPE_CHECKING:
    from mooactor.process.runtime import Runtime


_SHORT_S = 0.1


class Admission:
    """Of the calls of one process. Threads: any."""

    def __init__(self, parts: Runtime, pending: Mapping[int, Future]) -> None:
        """`pending`: the calls that have not ended, by id."""
        self._parts = parts
        self._pending = pending
        # By actor: the sum of the ids of its calls when a wait for it was hopeless.
        self._hopeless: dict[int, int] = {}

    def wait(self, link: Link, timeout: float | None) -> float | None:
        """Wait for `timeout` seconds at most; what is left of them.

        Raises:
          Overloaded, DeadlockError: it must not wait, or would for ever.
          CallTimeout: the time is over.
          ActorDied, ActorUnavailable: the actor, or the session, has ended.
        """
        if link.overflow == "raise" or blocks_a_loop():
            raise errors.Overloaded(
                f"{link.label} has {len(link.calls)} calls outstanding from here, its "
                "bound (max_pending); wait for some of them first",
                delivered=False,
            )
        self._parts.sender.flush()
        deadline = None if timeout is None else perf_counter() + timeout
        caller = context.get()
        if caller is None or not caller.runs_here():
            roomy = self._parts.poller.wait(lambda: _is_over(link), deadline)
        else:
            roomy = self._wait_inside(caller, link, deadline)
        if link.cause is not None:
            raise link.gone()
        if not roomy and self._parts.sender.ended:
            raise self._parts.agent.session_ended(delivered=False)
        if not roomy:
            raise errors.CallTimeout(
                f"the mailbox of {link.label} stayed full for {timeout or 0:.3g} s: "
                "send fewer calls at a time, or raise max_pending",
                delivered=False,
            )
        return remaining(timeout, deadline)

    def _wait_inside(
        self, caller: CallContext, link: Link, deadline: float | None
    ) -> bool:
        """In a method. Most waits are short, and cost no more than those elsewhere."""

        def done() -> bool:
            return _is_over(link) or self._waits_for_itself(caller, link)

        before, roomy = self._hopeless.pop(link.actor_id, None), False
        if before is None or before != _total(link):
            soon = perf_counter() + _SHORT_S
            until = soon if deadline is None else min(soon, deadline)
            roomy = self._parts.poller.wait(done, until)
        if not roomy:
            roomy = self._search(caller, link, done, deadline)
        if roomy and not _is_over(link):
            raise errors.Overloaded(
                f"{link.label} has {len(link.calls)} calls to itself outstanding, its "
                "bound (max_pending), and runs none of them before the one that makes "
                "them ends; make fewer at a time, or raise max_pending",
                delivered=False,
            )
        return roomy

    def _search(
        self,
        caller: CallContext,
        link: Link,
        done: Callable[[], object],
        deadline: float | None,
    ) -> bool:
        """Wait on, and search for a cycle meanwhile."""
        wait = WaitForRoom(link, self._pending, caller.deadline)
        try:
            return self._parts.deadlocks.wait_for_room(caller, wait, done, deadline)
        except errors.DeadlockError:
            self._hopeless[link.actor_id] = _total(link)
            raise

    def _waits_for_itself(self, caller: CallContext, link: Link) -> bool:
        """Whether all calls over a link to this actor wait for this method. The replies
        of those that have ended may be on their way."""
        server = self._parts.server
        if server is None or link.actor_id != caller.actor_id:
            return False
        me = self._parts.process_id
        return server.holder_of_all(me, _total(link)) is caller


def _total(link: Link) -> int:
    return sum(list(link.calls))


def _is_over(link: Link) -> bool:
    return len(link.calls) < link.limit or link.cause is not None


def remaining(timeout: float | None, deadline: float | None) -> float | None:
    """The seconds left until both are over; None: there is no limit."""
    if deadline is None:
        return timeout
    left = max(0.001, deadline - perf_counter())
    return left if timeout is None else min(timeout, left)
