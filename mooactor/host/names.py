# SPDX-License-Identifier: MIT
"""The names of a session's actors."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import NamedTuple

from mooactor.host.eventloop import EventLoop, Line
from mooactor.host.lifetimes import Supervised

STARTING = "an actor that another session starts"  # instead of a label


class _Lookup(NamedTuple):
    name: str
    line: Line
    rid: int | None


class Names:
    """At most one living actor has a name. A lookup waits until one has it.

    Other sessions of the namespace have names, too: those *elsewhere*. ``followers``
    are told of each name that an actor of this session gets, or loses (None).
    """

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._holders: dict[str, Supervised] = {}
        self._given: dict[str, int] = {}  # how often each name was given
        self._lookups: list[_Lookup] = []
        # By name: label and handle, by session.
        self._elsewhere: dict[str, dict[Hashable, tuple[str, bytes]]] = {}
        self.followers: list[Callable[[str, Supervised | None], None]] = []

    def given(self) -> list[tuple[str, Supervised]]:
        """All names of this session's actors."""
        return list(self._holders.items())

    def taken_by(self, name: str) -> str | None:
        """The label of the actor of that name, in any session; None: it is free."""
        actor = self._holders.get(name)
        if actor is not None:
            return actor.label
        return next((label for label, _ in self._others(name)), None)

    def _others(self, name: str) -> list[tuple[str, bytes]]:
        return list(self._elsewhere.get(name, {}).values())

    def put_elsewhere(
        self, session: Hashable, name: str, label: str, handle: bytes
    ) -> None:
        """An actor of another session has that name."""
        self._elsewhere.setdefault(name, {})[session] = label, handle
        self._answer(name)

    def drop_elsewhere(self, session: Hashable, name: str) -> None:
        """It has not any more."""
        holders = self._elsewhere.get(name, {})
        holders.pop(session, None)
        if not holders:
            self._elsewhere.pop(name, None)

    def drop_all_elsewhere(self, session: Hashable) -> None:
        """That session is lost."""
        for name in list(self._elsewhere):
            self.drop_elsewhere(session, name)

    def holder(self, name: str) -> Supervised | None:
        """The actor of that name."""
        return self._holders.get(name)

    def give(self, actor: Supervised) -> int:
        """Give the actor its name; does nothing if it has none.

        Returns the number of actors that had the name before.
        """
        if actor.name is None:
            return 0
        self._holders[actor.name] = actor
        self._answer(actor.name)
        self._tell(actor.name, actor)
        before = self._given.get(actor.name, 0)
        self._given[actor.name] = before + 1
        return before

    def free(self, actor: Supervised) -> None:
        """The actor is over: its name may be given again."""
        if actor.name is not None and self._holders.get(actor.name) is actor:
            del self._holders[actor.name]
            self._tell(actor.name, None)

    def _tell(self, name: str, actor: Supervised | None) -> None:
        for follower in self.followers:
            follower(name, actor)

    def look_up(
        self, line: Line, rid: int | None, name: str, timeout_s: float | None
    ) -> None:
        """Reply with the handle of that name, or None if nobody gets it in time."""
        entry = _Lookup(name, line, rid)
        self._lookups.append(entry)
        self._answer(name)
        if timeout_s is not None and entry in self._lookups:
            self._loop.later(timeout_s, partial(self._end, entry, None))

    def _answer(self, name: str) -> None:
        actor = self._holders.get(name)
        handles = [handle for _, handle in self._others(name)]
        if actor is not None:
            handles = [actor.handle]
        if not handles:
            return
        for entry in [entry for entry in self._lookups if entry.name == name]:
            self._end(entry, handles[0])

    def _end(self, entry: _Lookup, handle: bytes | None) -> None:
        """Answer it, unless it has ended."""
        if entry in self._lookups:
            self._lookups.remove(entry)
            self._loop.reply(entry.line, entry.rid, handle)

    def forget(self, line: Line) -> None:
        """A process is gone: drop its lookups."""
        self._lookups = [entry for entry in self._lookups if entry.line is not line]
