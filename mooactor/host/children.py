# SPDX-License-Identifier: MIT
"""The children of one supervisor: which of them start, end and come back, and when.

Plain logic: it has no process, no clock and no socket. `supervisors` tells it what
happened and does what it answers. The strategies, and the limit within a window, are
those of Erlang's supervisors (OTP design principles, "Supervisor Behaviour").

Invariants:

* Children start in their order, each after the constructor of the one before it has
  returned, when the supervisor begins; or all at once, without ``in_order``. With
  ``one_for_all`` and ``rest_for_one`` that holds for every restart, too, and none
  starts before all that end are dead.
* One failure counts once, and brings back exactly: the child (``one_for_one``), all
  children (``one_for_all``), or the child and those after it (``rest_for_one``).
* Deaths of children that are being ended are no failures, whatever their cause. So ten
  that die at once are one failure of ``one_for_all``, and ten of ``one_for_one``.
* More than ``max`` failures within the window make the supervisor give up, once. No
  child starts afterwards, until it begins again.
* A child whose end was requested stays away, and so does one whose policy says so.
  Their ends are no failures and concern no other child.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Literal, NamedTuple

import msgspec

from mooactor.process.supervision import Restart, Supervision, When

# How a child's process ended: "clean" is exit code 0, "requested" an end that somebody
# asked for, so that it stays away.
How = Literal["failed", "clean", "requested"]


class Phase(Enum):
    WAITING = "waiting"  # for its turn, or its back-off; it has no process
    STARTING = "starting"  # it was told to start; its constructor has not returned
    RUNNING = "running"
    ENDING = "ending"  # it was killed in order to come back
    OVER = "over"


class Verdict(NamedTuple):
    """What follows from a death."""

    returns: bool  # this child will run again, unless the supervisor gives up
    kill: tuple[str, ...] = ()  # other children, in this order
    gives_up: bool = False


class _Member(msgspec.Struct, eq=False):
    key: str
    when: When
    budget: RestartBudget | None  # its own limit, beside the supervisor's
    position: int
    phase: Phase = Phase.WAITING
    due: float = 0.0  # not to be started earlier
    ran: bool = False  # since the supervisor began


class Roster:
    """See the module. Times are monotonic seconds."""

    def __init__(
        self, rules: Supervision, draw: Callable[[], float] = random.random
    ) -> None:
        """`draw`: a number from 0 to 1, for the jitter."""
        self._rules = rules
        self._draw = draw
        self._members: dict[str, _Member] = {}
        self._failures: deque[tuple[float, _Member]] = deque()
        self._together = rules.strategy != "one_for_one"
        self.active = False  # the supervisor runs
        self.gave_up = False
        self.closed = False

    def add(self, key: str, when: When, budget: RestartBudget | None = None) -> None:
        """Another child, the last in the order; or one in the place of a child of the
        same key that is over."""
        old = self._members.get(key)
        position = len(self._members) if old is None else old.position
        self._members[key] = _Member(key, when, budget, position)

    def phase(self, key: str) -> Phase:
        return self._members[key].phase

    @property
    def complete(self) -> bool:
        """Whether every child runs that is not over."""
        return all(map(_settled, self._members.values()))

    # -- the supervisor ----------------------------------------------------

    def begin(self) -> None:
        """The supervisor is up: its children may start, and earlier failures are
        forgotten."""
        self.active = not self.closed
        self.gave_up = False
        self._failures.clear()
        for member in self._members.values():
            member.ran, member.due = False, 0.0

    def pause(self) -> list[str]:
        """The supervisor's process is gone and comes back. The children that must be
        ended until then, in this order."""
        self.active = self.gave_up = False
        return self._end(self._members.values())

    def give_up(self) -> None:
        """A child cannot come back, and should."""
        self.active, self.gave_up = False, True

    def close(self) -> None:
        """The supervisor stops: no child comes back any more."""
        self.active, self.closed = False, True

    # -- children ----------------------------------------------------------

    def start(self, now: float) -> list[str]:
        """The children to start now; they count as started."""
        if not self.active or (self._together and self._any(Phase.ENDING)):
            return []
        found, clear = [], True  # clear: all before this one run
        for member in self._members.values():
            in_turn = self._rules.in_order and (self._together or not member.ran)
            due = member.phase is Phase.WAITING and member.due <= now
            if due and (clear or not in_turn):
                member.phase = Phase.STARTING
                found.append(member.key)
            clear = clear and _settled(member)
        return found

    def next_due(self, now: float) -> float | None:
        """When `start` may have more to say, if nothing happens until then."""
        waiting = [m.due for m in self._members.values() if m.phase is Phase.WAITING]
        return min((due for due in waiting if due > now), default=None)

    def ready(self, key: str) -> None:
        """Its constructor has returned."""
        member = self._members[key]
        if member.phase is Phase.STARTING:
            member.phase, member.ran = Phase.RUNNING, True

    def withdrawn(self, key: str) -> None:
        """It had no process yet when it was to be ended, so there is no death."""
        self._members[key].phase = Phase.WAITING

    def over(self, key: str) -> None:
        """It will never run again."""
        self._members[key].phase = Phase.OVER

    def died(self, key: str, now: float, how: How) -> Verdict:
        """Its process has ended."""
        member = self._members[key]
        was_ended = member.phase is Phase.ENDING
        stays_away = how == "clean" and member.when == "on_failure" and not was_ended
        if (
            self.closed
            or how == "requested"
            or member.when == "never"
            or stays_away
            or member.phase is Phase.OVER
        ):
            member.phase = Phase.OVER
            return Verdict(False)
        if was_ended or not self.active:
            member.phase = Phase.WAITING
            return Verdict(True)
        return self._failed(member, now)

    def foresee(self, key: str, now: float) -> Literal["returns", "over", "gives up"]:
        """What a failure of this child would lead to now."""
        member = self._members[key]
        if self.closed or member.when == "never" or member.phase is Phase.OVER:
            return "over"
        if self.gave_up:
            return "gives up"
        if member.phase is Phase.ENDING or not self.active:
            return "returns"
        return "returns" if self._allows(member, now) else "gives up"

    # -- failures ----------------------------------------------------------

    def _failed(self, member: _Member, now: float) -> Verdict:
        member.phase = Phase.WAITING
        if not self._allows(member, now):
            self.give_up()
            return Verdict(True, gives_up=True)
        due = now + self._delay(member, now)
        self._failures.append((now, member))
        together = [m for m in self._members.values() if self._covers(member, m)]
        for one in together:
            one.due = max(one.due, due)
        return Verdict(True, tuple(self._end(together)))

    def _allows(self, member: _Member, now: float) -> bool:
        while self._failures and now - self._failures[0][0] > self._rules.within:
            self._failures.popleft()
        own = member.budget is None or member.budget.allows(now)
        return own and len(self._failures) < self._rules.max

    def _delay(self, member: _Member, now: float) -> float:
        """It grows with the recent failures that this child was restarted for."""
        before = sum(self._covers(failed, member) for _, failed in self._failures)
        delay = self._rules.delay(before, self._draw())
        own = None if member.budget is None else member.budget.take(now)
        return max(delay, own or 0.0)

    def _covers(self, failed: _Member, other: _Member) -> bool:
        """Whether a failure of the one restarts the other."""
        if self._rules.strategy == "one_for_one":
            return other is failed
        if self._rules.strategy == "one_for_all":
            return True
        return other.position >= failed.position

    def _end(self, members: Iterable[_Member]) -> list[str]:
        ended = []
        for member in reversed(list(members)):
            if member.phase in (Phase.STARTING, Phase.RUNNING):
                member.phase = Phase.ENDING
                ended.append(member.key)
        return ended

    def _any(self, phase: Phase) -> bool:
        return any(member.phase is phase for member in self._members.values())


def _settled(member: _Member) -> bool:
    return member.phase in (Phase.RUNNING, Phase.OVER)


LONGEST_BACKOFF_S = 60.0  # unless the first back-off is longer already
MOST_RESTARTS = 0xFFFF  # of one actor in its life: its process ids have room for these


class RestartBudget:
    """The restarts that a policy still allows; times are monotonic seconds."""

    def __init__(self, policy: Restart | None) -> None:
        self._policy = policy
        self._times: deque[float] = deque()

    def allows(self, now: float) -> bool:
        """Whether there is a next restart now."""
        policy = self._policy
        if policy is None:
            return False
        while self._times and now - self._times[0] > policy.within:
            self._times.popleft()
        return len(self._times) < policy.max

    def take(self, now: float) -> float | None:
        """Seconds to wait before the next restart; None if there is no next one."""
        policy = self._policy
        if policy is None or not self.allows(now):
            return None
        # 2 ** 1024 is no float, and nobody waits for years.
        delay = policy.backoff * 2.0 ** min(len(self._times), 60)
        self._times.append(now)
        return min(delay, max(policy.backoff, LONGEST_BACKOFF_S))
