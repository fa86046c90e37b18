# SPDX-License-Identifier: MIT
"""The timers of a world in virtual time."""

from __future__ import annotations

from collections.abc import Callable


class Timers:
    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self._due.append((self.now + seconds, action))

    def sleep(self, seconds: float) -> None:
        """Let time pass; actions come when they are due, and may add others."""
        until = self.now + seconds
        while due := [timer for timer in self._due if timer[0] <= until]:
            timer = min(due, key=lambda one: one[0])
            self._due.remove(timer)
            self.now = timer[0]
            timer[1]()
        self.now = until
