# SPDX-License-Identifier: MIT
"""Requests of any process about an actor: its end, news of it, its handle.

In a survey every process of a session is asked how it is. Its housekeeper answers,
unless something holds the GIL. Those that do not answer in time are listed without what
only they know.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict, replace

from mooactor.control.keys import actor_of
from mooactor.host.eventloop import Line
from mooactor.host.protocol import StatusRow
from mooactor.host.supervised import Supervised
from mooactor.process.exits import ExitRecord
from mooactor.process.protocol import (
    AwaitEnd,
    GetHandle,
    Kill,
    Monitor,
    Request,
    Survey,
    Surveyed,
    Unmonitor,
    Watch,
    death_notice,
)

if TYPE_CHECKING:
    from mooactor.host.home import Home


class Watching:
    """Serves `Requests`, as `Births` does."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._reply = home.loop.reply

    def operations(self) -> dict[type[Request], Callable[[Line, Any, list[int]], None]]:
        """The requests."""
        return {
            Kill: self._kill,
            AwaitEnd: self._await_end,
            Watch: self._watch,
            Monitor: self._monitor,
            Unmonitor: self._unmonitor,
            GetHandle: self._handle,
        }

    def _kill(self, line: Line, request: Kill, fds: list[int]) -> None:
        actor = self._home.actor_of(request.id)
        if actor is None:
            self._reply(line, request.rid, False)
            return
        actor.end_waiters.append((line, request.rid))
        self._home.lifetimes.kill_tree(actor)

    def _await_end(self, line: Line, request: AwaitEnd, fds: list[int]) -> None:
        actor, stopped = self._home.actor_of(request.id), request.stopped
        if actor is None or actor.gone:
            self._reply(line, request.rid, True)
            return
        actor.end_waiters.append((line, request.rid))
        if stopped is None or actor.over:
            return
        actor.unwanted = actor.unwanted or "stopped"
        if actor.process is None or actor.incarnation != stopped:
            self._home.lifetimes.stop(actor)

    def _watch(self, line: Line, request: Watch, fds: list[int]) -> None:
        """Tell `line` of this actor's deaths; at once if it has died before."""
        known, actor = request.incarnation, self._home.actor_of(request.id)
        if actor is None:
            process_id = actor_of(request.id) + (known & 0xFFFF)
            if self._home.config and process_id == self._home.config.process_id:
                return  # the driver, whose death is everybody's
            never = death_notice(process_id, ExitRecord("unknown"))
            self._home.loop.post(line, never)
            return
        if not actor.over:
            actor.watchers.add(line)
        if actor.over or actor.incarnation > known:
            self._home.loop.post(line, actor.last_notice())

    def _monitor(self, line: Line, request: Monitor, fds: list[int]) -> None:
        actor, monitor = self._home.actor_of(request.id), request.monitor
        self._reply(line, request.rid, actor is not None)
        if actor is None:
            return
        if not actor.over:
            actor.monitors.append((line, monitor))
        if actor.last_event is not None:
            self._home.loop.post(line, replace(actor.last_event, monitor=monitor))

    def _unmonitor(self, line: Line, request: Unmonitor, fds: list[int]) -> None:
        actor = self._home.actor_of(request.id)
        entry = (line, request.monitor)
        if actor is not None and entry in actor.monitors:
            actor.monitors.remove(entry)

    def _handle(self, line: Line, request: GetHandle, fds: list[int]) -> None:
        actor = self._home.actor_of(request.id)
        self._reply(line, request.rid, None if actor is None else actor.handle)


Rows = list[StatusRow]


class Surveys:
    """Those that a home has under way."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._numbers = itertools.count(1)
        self._open: dict[int, tuple[dict[int, Survey], Callable[[Rows], None]]] = {}

    def begin(self, patience_s: float, then: Callable[[Rows], None]) -> None:
        """Call `then` with a row for each actor, after so many seconds at most."""
        number = next(self._numbers)
        self._open[number] = ({}, then)
        for actor in self._home.alive():
            assert actor.process is not None
            self._home.loop.post(actor.process.line, Surveyed(number))
        self._look(number)
        self._home.loop.later(patience_s, lambda: self._end(number))

    def answer(self, actor: Supervised, answer: Survey) -> None:
        """A process has answered."""
        found = self._open.get(answer.number)
        if found is not None:
            found[0][actor.id] = answer
            self._look(answer.number)

    def _look(self, number: int) -> None:
        answers = self._open[number][0]
        if all(actor.id in answers for actor in self._home.alive()):
            self._end(number)

    def _end(self, number: int) -> None:
        found = self._open.pop(number, None)
        if found is None:
            return
        answers, then = found
        rows = []
        for actor in self._home.living.values():
            row = actor.summary(self._home.sites.host_of(actor.id))
            said = answers.get(actor.id)
            rows.append(
                StatusRow(
                    **asdict(row),
                    restarts=actor.incarnation,
                    mailbox=None if said is None else said.mailbox,
                    memory=None if said is None else said.memory,
                )
            )
        then(rows)
