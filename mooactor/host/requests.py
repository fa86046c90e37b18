# SPDX-License-Identifier: MIT
"""Requests of processes to the host's agent, checked before they are carried out.

A request is ``{"op": …}`` with fields of plain values. One with an ``rid`` is answered
by ``{"ev": "reply", "rid": …, "value": …}``.

Invariants:

* A request is done as a whole or refused: its fields are checked before anything
  changes, and by their exact types, for any sender.
* An error in a request ends that request and nothing else. Its sender gets
  ``"failed": reason`` in the reply; a failed `spawn`, which may be sent without an
  ``rid``, is told as the death of that actor.
* The `spawn` of an unknown actor may be unread on another line, though it was sent
  before this request. Such a request is put off until every line has been read up to
  that time.
"""

from __future__ import annotations

import math
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from mooactor.control.keys import actor_of
from mooactor.control.lifeline import Lifeline, Message
from mooactor.host.fields import (
    LONGEST_S,
    MAX_ID,
    Refused,
    no_more_than,
    number,
    numbers,
    optional,
    quantity,
    required,
    strings,
    texts,
)
from mooactor.host.lifetimes import STOP_GRACE_S
from mooactor.host.supervised import Supervised, death_notice
from mooactor.process import openfiles
from mooactor.process.exits import ExitRecord
from mooactor.process.parcel import Parcel
from mooactor.process.place import Place
from mooactor.process.supervision import Restart

if TYPE_CHECKING:
    from mooactor.host.agent import Agent

# The agent's messages to others must fit into a frame, too.
_MOST_OF_AN_ERROR = 1 << 21
_MOST_OF_A_HANDLE = 1 << 21
_MOST_CHARACTERS = 1 << 16
_MOST_OF_A_STREAM = 64
_ROUNDS = 5  # a line is read by 4 MiB in each, and a frame has at most 16
_OF_AN_ACTOR = frozenset(("kill", "await_end", "watch", "monitor", "handle", "link"))
# Fields of a spawn request that its processes are not told.
_NOT_OF_LIFE = frozenset(
    (
        *("op", "rid", "id", "handle", "preload", "num_gpus", "detached", "carried"),
        "member",
    )
)

_CONFIGURATION = {
    "directory": str,
    "key": bytes,
    "process_id": int,
    "forward_logs": bool,
    "logs_by_lifeline": bool,
    "network": dict,
}


class Requests:
    """Listens to lifelines and carries out their requests."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._reply = agent.loop.reply
        self._put_off: list[tuple[int, Lifeline, Message]] = []
        self._operations: dict[str, Callable[[Lifeline, Message, list[int]], None]] = {
            "configure": self._configure,
            "spawn": self._spawn,
            "ready": self._ready,
            "failed": self._failed,
            "stopping": self._stopping,
            "snapshot": self._snapshot,
            "kill": self._kill,
            "await_end": self._await_end,
            "watch": self._watch,
            "monitor": self._monitor,
            "unmonitor": self._unmonitor,
            "lookup": self._look_up,
            "segment": self._segment,
            "handle": self._handle,
            "list": self._list,
            "shutdown": self._shutdown,
            **agent.teams.operations(),
            **agent.bonds.operations(),
        }

    # -- as they come ------------------------------------------------------

    def handle(self, line: Lifeline, message: Message, fds: list[int]) -> None:
        """Do one request; see the module."""
        op = message.get("op")
        if type(op) is str and op in _OF_AN_ACTOR and self._unknown(message):
            self._put_off.append((_ROUNDS, line, message))
            return
        self._serve(line, message, fds)

    def line_closed(self, line: Lifeline) -> None:
        """A process has closed its end."""
        self._put_off = [entry for entry in self._put_off if entry[1] is not line]
        self._agent.line_closed(line)

    @property
    def waiting(self) -> bool:
        """Whether some are put off: then another round is due at once."""
        return bool(self._put_off)

    def after_round(self) -> None:
        """Every readable line has been read once more."""
        put_off, self._put_off = self._put_off, []
        for rounds, line, message in put_off:
            if rounds and self._unknown(message):
                self._put_off.append((rounds - 1, line, message))
            else:
                self._serve(line, message, [])

    def _serve(self, line: Lifeline, message: Message, fds: list[int]) -> None:
        op = message.get("op")
        try:
            operation = self._operations.get(op) if type(op) is str else None
            if operation is None:
                why = message.get("malformed", f"there is no request {op!r:.40}")
                raise Refused(why)
            operation(line, message, fds)
        except Refused as error:
            self._refuse(line, message, str(error))
        except OSError as error:
            self._refuse(line, message, str(error))
        except Exception as error:  # a bug: not everybody's end
            traceback.print_exc(file=sys.stderr)
            self._refuse(line, message, f"{type(error).__name__}: {error}")

    def _refuse(self, line: Lifeline, message: Message, why: str) -> None:
        rid, actor_id = message.get("rid"), message.get("id")
        if type(rid) is int:
            self._reply(line, rid, None, failed=why)
        elif message.get("op") == "snapshot":
            lost = f"a snapshot is lost, a restart would restore an older one: {why}"
            self._agent.loop.post(line, {"ev": "lost_snapshot", "why": lost})
        elif (
            message.get("op") == "spawn"
            and type(actor_id) is int
            and 0 < actor_id <= MAX_ID  # otherwise it is no actor's, and nobody waits
        ):
            record = ExitRecord("exception", note=why)
            self._agent.loop.post(line, death_notice(actor_id, record, None))

    def _unknown(self, message: Message) -> bool:
        unknown = self._find(message) is None
        return unknown or ("other" in message and self._find(message, "other") is None)

    def _find(self, message: Message, key: str = "id") -> Supervised | None:
        actor_id = message.get(key)
        if type(actor_id) is not int:
            return None
        return self._agent.actors.get(actor_of(actor_id))

    def _sender(self, line: Lifeline) -> Supervised:
        actor = self._agent.by_line.get(line)
        if actor is None:
            raise Refused("only an actor may say that")
        return actor

    # -- spawning ----------------------------------------------------------

    def _configure(self, line: Lifeline, message: Message, fds: list[int]) -> None:
        self._only_driver(line)
        if self._agent.config is not None:
            raise Refused("the session is configured already")
        texts(message, "path"), texts(message, "argv"), texts(message, "preload")
        for key, kind in _CONFIGURATION.items():
            required(message, key, kind)
        optional(message, "seed", int)
        self._agent.configure(message)

    def _spawn(self, line: Lifeline, message: Message, fds: list[int]) -> None:
        agent, rid = self._agent, optional(message, "rid", int)
        actor, gpus, preload = self._new_actor(line, message, fds)
        try:
            if actor.name is not None and (holder := agent.names.holder(actor.name)):
                self._reply(line, rid, None, error="name taken", label=holder.label)
                return
            if len(agent.living) >= openfiles.capacity(openfiles.limit()):
                self._turn_away(line, actor, rid)
                return
            visible = agent.devices.take(actor.id, gpus)
            if visible is None:
                free = str(agent.devices)
                self._reply(line, rid, None, error="no GPU", free=free)
                return
            actor.life["env"] = {**actor.life["env"], **visible}
            actor.watchers.add(line)
            agent.spawn(actor, preload)
            self._reply(line, rid, True)
        finally:
            if actor.id not in agent.actors:
                agent.shelf.drop(actor.payload)

    def _turn_away(self, line: Lifeline, actor: Supervised, rid: int | None) -> None:
        """There is no room for it. Others may have its handle already, so without a
        reply it counts as an actor that has died."""
        why = openfiles.no_room("the session", len(self._agent.living))
        note = f"{actor.label} cannot be started: {why}"
        if rid is not None:
            self._reply(line, rid, None, error="no room", note=note)
            return
        actor.watchers.add(line)
        record = ExitRecord("exception", note=note, placement=True)
        self._agent.turn_away(actor, record)

    def _new_actor(
        self, line: Lifeline, message: Message, fds: list[int]
    ) -> tuple[Supervised, float, list[str]]:
        actor_id = number(message, "id", least=1)
        if actor_id != actor_of(actor_id) or actor_id in self._agent.actors:
            raise Refused(f"{actor_id:x} is no id for a new actor")
        if self._agent.config is None:
            raise Refused("the session is not configured yet")
        strings(message, "env")
        number(message, "threads", least=1)
        no_more_than(_MOST_OF_A_STREAM, "stream", optional(message, "stream", bytes))
        policy = optional(message, "policy", dict)
        place = optional(message, "place", dict)
        detached = required(message, "detached", bool)
        gpus, preload = quantity(message, "num_gpus"), texts(message, "preload")
        try:
            restart = None if policy is None else Restart(**policy)
        except (TypeError, ValueError) as error:
            raise Refused(f"the restart policy: {error}") from None
        try:
            if place is not None:
                Place.of_plain(place)
        except TypeError as error:
            raise Refused(f"place: {error}") from None
        name, label = optional(message, "name", str), required(message, "label", str)
        no_more_than(_MOST_CHARACTERS, "label", label)
        handle = required(message, "handle", bytes)
        no_more_than(_MOST_OF_A_HANDLE, "handle", handle)
        payload = self._carried(message, "payload", fds)
        actor = Supervised(
            actor_id,
            name,
            label,
            {key: message[key] for key in message.keys() - _NOT_OF_LIFE},
            handle,
            None if detached else self._agent.by_line.get(line),
            detached,
            restart,
            payload,
        )
        try:
            self._agent.teams.join(line, message, actor)
        except Refused:
            self._agent.shelf.drop(payload)
            raise
        return actor, gpus, preload

    def _carried(self, message: Message, key: str, fds: list[int]) -> Parcel:
        data = optional(message, key, bytes)
        if (data is None) != (len(fds) == 1):
            raise Refused(f"{key} is either bytes or one descriptor")
        return self._agent.shelf.keep(data, fds[0] if fds else None)

    # -- messages of actors about themselves -------------------------------

    def _ready(self, line: Lifeline, message: Message, fds: list[int]) -> None:
        self._agent.is_ready(self._sender(line))

    def _failed(self, line: Lifeline, message: Message, fds: list[int]) -> None:
        error = required(message, "error", bytes)
        self._sender(line).failure = no_more_than(_MOST_OF_AN_ERROR, "error", error)

    def _stopping(self, line: Lifeline, message: Message, fds: list[int]) -> None:
        actor = self._sender(line)
        actor.unwanted = actor.unwanted or "stopped"

    def _snapshot(self, line: Lifeline, message: Message, fds: list[int]) -> None:
        actor = self._sender(line)
        parcel = self._carried(message, "data", fds)
        self._agent.shelf.drop(actor.snapshot)
        actor.snapshot = parcel
        self._reply(line, optional(message, "rid", int), True)

    # -- requests of any process -------------------------------------------

    def _kill(self, line: Lifeline, message: Message, fds: list[int]) -> None:
        actor, rid = self._find(message), optional(message, "rid", int)
        if actor is None:
            self._reply(line, rid, False)
            return
        actor.end_waiters.append((line, rid))
        self._agent.lifetimes.kill_tree(actor)

    def _await_end(self, line: Lifeline, message: Message, fds: list[int]) -> None:
        """Reply when an actor is gone. `stopped`: the incarnation that the sender has
        stopped. If that has died, the stop is for the one after it."""
        actor, rid = self._find(message), optional(message, "rid", int)
        stopped = optional(message, "stopped", int)
        if actor is None or actor.gone:
            self._reply(line, rid, True)
            return
        actor.end_waiters.append((line, rid))
        if stopped is None or actor.over:
            return
        actor.unwanted = actor.unwanted or "stopped"
        if actor.child is None or actor.incarnation != stopped:
            self._agent.lifetimes.stop(actor)

    def _watch(self, line: Lifeline, message: Message, fds: list[int]) -> None:
        """Tell `line` of this actor's deaths; at once if it has died before."""
        known = number(message, "incarnation")
        actor = self._find(message)
        if actor is None:
            process_id = actor_of(number(message, "id")) + (known & 0xFFFF)
            if self._agent.config and process_id == self._agent.config["process_id"]:
                return  # the driver, whose death is everybody's
            never = death_notice(process_id, ExitRecord("unknown"), None)
            self._agent.loop.post(line, never)
            return
        if not actor.over:
            actor.watchers.add(line)
        if actor.over or actor.incarnation > known:
            self._agent.loop.post(line, actor.last_notice())

    def _monitor(self, line: Lifeline, message: Message, fds: list[int]) -> None:
        actor, rid = self._find(message), optional(message, "rid", int)
        monitor = number(message, "monitor")
        self._reply(line, rid, actor is not None)
        if actor is None:
            return
        if not actor.over:
            actor.monitors.append((line, monitor))
        if actor.last_event is not None:
            self._agent.loop.post(line, {**actor.last_event, "monitor": monitor})

    def _unmonitor(self, line: Lifeline, message: Message, fds: list[int]) -> None:
        actor, monitor = self._find(message), number(message, "monitor")
        if actor is not None and (line, monitor) in actor.monitors:
            actor.monitors.remove((line, monitor))

    def _look_up(self, line: Lifeline, message: Message, fds: list[int]) -> None:
        timeout_s = None
        if message.get("timeout") is not None:
            timeout_s = quantity(message, "timeout")
        rid, name = required(message, "rid", int), required(message, "name", str)
        self._agent.names.look_up(line, rid, name, timeout_s)

    def _segment(self, line: Lifeline, message: Message, fds: list[int]) -> None:
        rid, name = required(message, "rid", int), required(message, "name", str)
        size = number(message, "size", least=1, most=1 << 46)
        fd = self._agent.segments.get(name, size)
        self._agent.loop.post(line, {"ev": "reply", "rid": rid, "value": True}, [fd])

    def _handle(self, line: Lifeline, message: Message, fds: list[int]) -> None:
        actor, rid = self._find(message), required(message, "rid", int)
        self._reply(line, rid, None if actor is None else actor.handle)

    def _list(self, line: Lifeline, message: Message, fds: list[int]) -> None:
        rows = [actor.summary() for actor in self._agent.living.values()]
        self._reply(line, optional(message, "rid", int), rows)

    def _shutdown(self, line: Lifeline, message: Message, fds: list[int]) -> None:
        self._only_driver(line)
        grace = message.get("grace")
        if grace == math.inf:
            message = {**message, "grace": LONGEST_S}
        grace_s = STOP_GRACE_S if grace is None else quantity(message, "grace")
        self._agent.lifetimes.shut_down(grace_s, numbers(message, "given_up"))

    def _only_driver(self, line: Lifeline) -> None:
        if line is not self._agent.driver:
            raise Refused("only the program that started the session may say that")
