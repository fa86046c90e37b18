# SPDX-License-Identifier: MIT
"""Actors that are due to start, while there is no place for them.

They have run before, or are children whose supervisor has them start now. The host that
an actor is pinned to may be away, or all that it needs is reserved.
Waiting for a place is no attempt to start: it uses up no restart, however long it
takes, and its watchers hear nothing. What counts is the death of a process that ran.

They are tried again, in the order in which they came to wait, soon after a host has
joined or has changed, and now and then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mooactor.host.supervised import Supervised, SupervisedState

if TYPE_CHECKING:
    from mooactor.host.home import Home

_SOON_S = 0.05  # changes within this time are looked at together
_PAUSE_S = 1.0
_AT_A_TIME = 256  # so that others are served between


class Placeless:
    """Those of one session."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._waiting: dict[Supervised, None] = {}  # in order
        self._look_is_due = self._soon = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, actor: Supervised) -> None:
        """It has no process, and finds no place."""
        actor.state = SupervisedState.WAITING
        actor.due = True
        self._waiting[actor] = None
        if not self._look_is_due:
            self._look_is_due = True
            self._home.loop.later(_PAUSE_S, self._look_again)

    def discard(self, actor: Supervised) -> None:
        """It has a process, or is not to start now."""
        actor.due = False
        self._waiting.pop(actor, None)

    def hosts_changed(self) -> None:
        """There may be room: look soon."""
        if self._waiting and not self._soon:
            self._soon = True
            self._home.loop.later(_SOON_S, self._look)

    def _look_again(self) -> None:
        self._look_is_due = False
        self._look()

    def _look(self) -> None:
        self._soon = False
        for actor in list(self._waiting)[:_AT_A_TIME]:
            if actor in self._waiting:  # starting one may have ended another
                self.discard(actor)
                self._home.start(actor)
        if self._waiting and not self._look_is_due:
            self._look_is_due = True
            self._home.loop.later(_PAUSE_S, self._look_again)
