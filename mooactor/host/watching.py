# SPDX-License-Identifier: MIT
"""Requests of any process about an actor: its end, news of it, its handle."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mooactor.control.keys import actor_of
from mooactor.control.lifeline import Message
from mooactor.host.eventloop import Line
from mooactor.host.fields import number, optional, required
from mooactor.host.supervised import death_notice
from mooactor.process.exits import ExitRecord

if TYPE_CHECKING:
    from mooactor.host.home import Home


class Watching:
    """Serves `Requests`, as `Births` does."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._reply = home.loop.reply

    def operations(self) -> dict[str, Callable[[Line, Message, list[int]], None]]:
        """The requests."""
        return {
            "kill": self._kill,
            "await_end": self._await_end,
            "watch": self._watch,
            "monitor": self._monitor,
            "unmonitor": self._unmonitor,
            "handle": self._handle,
        }

    def _kill(self, line: Line, message: Message, fds: list[int]) -> None:
        actor, rid = self._home.actor_in(message), optional(message, "rid", int)
        if actor is None:
            self._reply(line, rid, False)
            return
        actor.end_waiters.append((line, rid))
        self._home.lifetimes.kill_tree(actor)

    def _await_end(self, line: Line, message: Message, fds: list[int]) -> None:
        """Reply when an actor is gone. `stopped`: the incarnation that the sender has
        stopped. If that has died, the stop is for the one after it."""
        actor, rid = self._home.actor_in(message), optional(message, "rid", int)
        stopped = optional(message, "stopped", int)
        if actor is None or actor.gone:
            self._reply(line, rid, True)
            return
        actor.end_waiters.append((line, rid))
        if stopped is None or actor.over:
            return
        actor.unwanted = actor.unwanted or "stopped"
        if actor.process is None or actor.incarnation != stopped:
            self._home.lifetimes.stop(actor)

    def _watch(self, line: Line, message: Message, fds: list[int]) -> None:
        """Tell `line` of this actor's deaths; at once if it has died before."""
        known = number(message, "incarnation")
        actor = self._home.actor_in(message)
        if actor is None:
            process_id = actor_of(number(message, "id")) + (known & 0xFFFF)
            if self._home.config and process_id == self._home.config["process_id"]:
                return  # the driver, whose death is everybody's
            never = death_notice(process_id, ExitRecord("unknown"), None)
            self._home.loop.post(line, never)
            return
        if not actor.over:
            actor.watchers.add(line)
        if actor.over or actor.incarnation > known:
            self._home.loop.post(line, actor.last_notice())

    def _monitor(self, line: Line, message: Message, fds: list[int]) -> None:
        actor, rid = self._home.actor_in(message), optional(message, "rid", int)
        monitor = number(message, "monitor")
        self._reply(line, rid, actor is not None)
        if actor is None:
            return
        if not actor.over:
            actor.monitors.append((line, monitor))
        if actor.last_event is not None:
            self._home.loop.post(line, {**actor.last_event, "monitor": monitor})

    def _unmonitor(self, line: Line, message: Message, fds: list[int]) -> None:
        actor, monitor = self._home.actor_in(message), number(message, "monitor")
        if actor is not None and (line, monitor) in actor.monitors:
            actor.monitors.remove((line, monitor))

    def _handle(self, line: Line, message: Message, fds: list[int]) -> None:
        actor, rid = self._home.actor_in(message), required(message, "rid", int)
        self._reply(line, rid, None if actor is None else actor.handle)
