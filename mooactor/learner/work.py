# SPDX-License-Identifier: MIT
"""An operation of a learner group that may still be under way."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, TypeVar

from mooactor.errors import ActorUnavailable, CallTimeout, PeerLost
from mooactor.tensors import collective
from mooactor.tensors.collective import Outcome, SharedWork

T = TypeVar("T")

# How long C may keep the thread before Python looks for signals.
_SLICE_S = 0.1


class Work(Generic[T]):
    """An operation that was queued; `wait` for it, or `start` it.

    Ordering: the operations of a group run in the order queued. Without a
    background thread each runs inside `wait`, in the thread that called it, which is
    quickest; `start` hands them to the group's own thread, so that they overlap
    with what this thread does meanwhile.

    Dropping a work does not cancel it: the other members count on it.
    """

    __slots__ = (
        *("_finish", "_group", "_label", "_lock"),
        *("_result", "_start", "_works"),
    )

    def __init__(
        self,
        group: str,
        label: str,
        works: Sequence[SharedWork],
        result: T,
        finish: Sequence[Callable[[], object]],
        start: Callable[[], None],
    ) -> None:
        self._label, self._group = label, group
        self._works, self._result, self._finish = list(works), result, list(finish)
        self._start, self._lock = start, threading.Lock()

    def start(self) -> Work[T]:
        """Run this and all later operations in the group's background thread."""
        self._start()
        return self

    def wait(self, timeout: float | None = None) -> None:
        """Return when the operation has succeeded.

        Args:
          timeout: seconds. An operation that is late stays queued, or half done:
            wait again. The group's own timeout ends it for all members.

        Raises:
          PeerLost: a member died, or left, or the connection with it failed. All
            others get the same error.
          ActorUnavailable: no transport leads to the other hosts.
          CallTimeout: `timeout` is over, or a member did not come within the
            group's timeout; the message says which.
          ValueError: the members did not make the same call.
        """
        until = None if timeout is None else time.monotonic() + timeout
        outcomes = [self._outcome(work, until) for work in self._works]
        for outcome in outcomes:
            if outcome.status:
                raise self._error(outcome)
        with self._lock:
            while self._finish:
                self._finish.pop()()

    def result(self, timeout: float | None = None) -> T:
        """Wait, and return the tensors: those given, unless others were asked for."""
        self.wait(timeout)
        return self._result

    def done(self) -> bool:
        """Whether it is over, well or not. Never blocks."""
        return all(work.done() for work in self._works)

    def __await__(self) -> Generator[Any, None, T]:
        self.start()
        return asyncio.to_thread(self.result).__await__()

    def _outcome(self, work: SharedWork, until: float | None) -> Outcome:
        while True:
            left = _SLICE_S if until is None else until - time.monotonic()
            outcome = work.wait(min(_SLICE_S, max(0.0, left)))
            if outcome is not None:
                return outcome
            if until is not None and time.monotonic() >= until:
                raise CallTimeout(f"{self._label} is not done yet")

    def _error(self, outcome: Outcome) -> Exception:
        what, status = f"{self._label} of learner group {self._group!r}", outcome.status
        who = f"rank {outcome.rank} (process {outcome.pid}) of epoch {outcome.epoch}"
        if status == collective.EPEER:
            story = outcome.text or f"{who} {'left' if outcome.left else 'died'}"
            return PeerLost(
                f"{story} during {what}; the others get this error too and can go "
                "on in the next epoch",
                rank=outcome.rank,
                epoch=outcome.epoch,
            )
        if status == collective.ETIMEOUT:
            late = outcome.text or f"{who} did not take part"
            return CallTimeout(f"{what} took too long: {late}")
        if status == collective.EMISMATCH:
            return ValueError(f"the members disagree in {what}: {outcome.text}")
        if status == collective.EUNREACHABLE:
            why = outcome.text or "no transport between hosts is allowed to all"
            return ActorUnavailable(
                f"{what}, whose members are on several hosts: {why}; see "
                "`mooactor doctor` and MOOACTOR_TRANSPORT"
            )
        if status == collective.ECLOSED:
            return RuntimeError(f"this process left during {what}")
        return ValueError(f"{what} does not fit the group: has its size changed?")

    def __repr__(self) -> str:
        state = "done" if self.done() else "under way"
        return f"<Work {self._label} of {self._group!r}, {state}>"
