# SPDX-License-Identifier: MIT
"""The number and the times of an actor's restarts by the agent."""

from __future__ import annotations

from collections import deque

from mooactor.process.supervision import Restart

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
