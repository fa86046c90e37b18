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
from functools import partial
from typing import TYPE_CHECKING

from mooactor.control.keys import actor_of
from mooactor.control.lifeline import Message
from mooactor.host.eventloop import Line
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
from mooactor.host.placement import Needs, NoPlace
from mooactor.host.remote_fields import MOST_OF_A_SEGMENT
from mooactor.host.supervised import Supervised, death_notice
from mooactor.process.exits import ExitRecord
from mooactor.process.parcel import Parcel
from mooactor.process.place import Place
from mooactor.process.supervision import Restart

if TYPE_CHECKING:
    from mooactor.host.home import Home

# The agent's messages to others must fit into a frame, too.
_MOST_OF_AN_ERROR = 1 << 21
_MOST_OF_A_HANDLE = 1 << 21
_MOST_CHARACTERS = 1 << 16
_MOST_OF_A_STREAM = 64
_ROUNDS = 5  # a line is read by 4 MiB in each, and a frame has at most 16
_OF_AN_ACTOR = frozenset(("kill", "await_end", "watch", "monitor", "handle", "link"))
#: Those that processes of other sessions of the namespace may make; see `neighbors`.
SERVED = frozenset(
    ("watch", "monitor", "unmonitor", "kill", "await_end", "locate", "handle")
)
# Fields of a spawn request that its processes are not told.
_NOT_OF_LIFE = frozenset(
    (
        *("op", "rid", "id", "handle", "preload", "detached", "carried", "member"),
        *("host", "num_cpus", "num_gpus", "memory", "labels", "order"),
    )
)

_CONFIGURATION = {
    "directory": str,
    "key": bytes,
    "process_id": int,
    "forward_logs": bool,
    "logs_by_lifeline": bool,
    "network": dict,
    "place": dict,
    "python": str,
    "local": bool,
}


class Requests:
    """Listens to lifelines and carries out their requests."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._reply = home.loop.reply
        self._put_off: list[tuple[int, Line, Message]] = []
        self._operations: dict[str, Callable[[Line, Message, list[int]], None]] = {
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
            "place": self._place,
            "unplace": self._unplace,
            "hosts": self._hosts,
            "reachable": self._reachable,
            "locate": self._locate,
            "survey": self._survey,
            "shutdown": self._shutdown,
            **home.teams.operations(),
            **home.bonds.operations(),
        }

    # -- as they come ------------------------------------------------------

    def handle(self, line: Line, message: Message, fds: list[int]) -> None:
        """Do one request; see the module."""
        op = message.get("op")
        if type(op) is str and op in _OF_AN_ACTOR and self._unknown(message):
            self._put_off.append((_ROUNDS, line, message))
            return
        self._serve_or_hand_on(line, message, fds)

    def _serve_or_hand_on(self, line: Line, message: Message, fds: list[int]) -> None:
        """Serve it, unless it is for an actor of another session of the namespace."""
        neighbors = self._home.neighbors
        if neighbors is None or not self._is_foreign(message):
            self._serve(line, message, fds)
        else:
            neighbors.take(line, message, partial(self._serve, line, message, []))

    def _is_foreign(self, message: Message) -> bool:
        op, actor_id, config = message.get("op"), message.get("id"), self._home.config
        if type(op) is not str or op not in SERVED or type(actor_id) is not int:
            return False
        is_driver = config is not None and actor_id == config["process_id"]
        return not is_driver and self._find(message) is None

    def serve(self, line: Line, message: Message) -> None:
        """Do a request of another session's process."""
        self._serve(line, message, [])

    def line_closed(self, line: Line) -> None:
        """A process has closed its end."""
        self._put_off = [entry for entry in self._put_off if entry[1] is not line]
        self._home.line_closed(line)

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
                self._serve_or_hand_on(line, message, [])

    def _serve(self, line: Line, message: Message, fds: list[int]) -> None:
        self._guard(line, message, partial(self._do, line, message, fds))

    def _do(self, line: Line, message: Message, fds: list[int]) -> None:
        op = message.get("op")
        operation = self._operations.get(op) if type(op) is str else None
        if operation is None:
            why = message.get("malformed", f"there is no request {op!r:.40}")
            raise Refused(why)
        operation(line, message, fds)

    def _guard(self, line: Line, message: Message, action: Callable[[], None]) -> None:
        """Do what belongs to a request; an error in it ends that request only."""
        try:
            action()
        except Refused as error:
            self._refuse(line, message, str(error))
        except OSError as error:
            self._refuse(line, message, str(error))
        except Exception as error:  # a bug: not everybody's end
            traceback.print_exc(file=sys.stderr)
            self._refuse(line, message, f"{type(error).__name__}: {error}")

    def _refuse(self, line: Line, message: Message, why: str) -> None:
        rid, actor_id = message.get("rid"), message.get("id")
        if type(rid) is int:
            self._reply(line, rid, None, failed=why)
        elif message.get("op") == "snapshot":
            lost = f"a snapshot is lost, a restart would restore an older one: {why}"
            self._home.loop.post(line, {"ev": "lost_snapshot", "why": lost})
        elif (
            message.get("op") == "spawn"
            and type(actor_id) is int
            and 0 < actor_id <= MAX_ID  # otherwise it is no actor's, and nobody waits
        ):
            record = ExitRecord("exception", note=why)
            self._home.loop.post(line, death_notice(actor_id, record, None))

    def _unknown(self, message: Message) -> bool:
        unknown = self._find(message) is None
        return unknown or ("other" in message and self._find(message, "other") is None)

    def _find(self, message: Message, key: str = "id") -> Supervised | None:
        actor_id = message.get(key)
        if type(actor_id) is not int:
            return None
        return self._home.actors.get(actor_of(actor_id))

    def _sender(self, line: Line) -> Supervised:
        actor = self._home.by_line.get(line)
        if actor is None:
            raise Refused("only an actor may say that")
        return actor

    # -- spawning ----------------------------------------------------------

    def _configure(self, line: Line, message: Message, fds: list[int]) -> None:
        self._only_driver(line)
        if self._home.config is not None:
            raise Refused("the session is configured already")
        texts(message, "path"), texts(message, "argv"), texts(message, "preload")
        for key, kind in _CONFIGURATION.items():
            required(message, key, kind)
        optional(message, "seed", int)
        optional(message, "reach", dict), optional(message, "cluster", dict)
        self._home.configure(message)

    def _spawn(self, line: Line, message: Message, fds: list[int]) -> None:
        home, rid = self._home, optional(message, "rid", int)
        actor, preload = self._new_actor(line, message, fds)

        def admit(taken_by: str | None) -> None:
            act = partial(self._admit, line, actor, preload, rid, taken_by)
            self._guard(line, message, act)

        taken_by = None if actor.name is None else home.names.taken_by(actor.name)
        if actor.name is None or taken_by or home.neighbors is None:
            admit(taken_by)
        else:
            home.neighbors.claim(actor.name, admit)

    def _admit(
        self,
        line: Line,
        actor: Supervised,
        preload: list[str],
        rid: int | None,
        taken_by: str | None,
    ) -> None:
        """Spawn it, unless there is no name or no room for it."""
        home = self._home
        try:
            if not home.loop.is_open(line):
                return  # its spawner has ended while the name was claimed
            if taken_by is not None:
                self._reply(line, rid, None, error="name taken", label=taken_by)
                return
            if home.is_full():
                self._turn_away(line, actor, rid, home.no_room(len(home.living)))
                return
            try:
                if not home.sites.is_placed(actor.id):
                    home.sites.place([actor.id], actor.needs)
            except NoPlace as error:
                self._turn_away(line, actor, rid, str(error))
                return
            actor.watchers.add(line)
            home.spawn(actor, preload)
            self._reply(line, rid, True)
        finally:
            if actor.id not in home.actors:
                home.shelf.drop(actor.payload)
                home.sites.unplace([actor.id])

    def _place(self, line: Line, message: Message, fds: list[int]) -> None:
        """Find a host for each of several actors that will be spawned, or for none."""
        rid, ids = required(message, "rid", int), numbers(message, "ids")
        home, needs = self._home, Needs.of(message)
        if any(i != actor_of(i) or i in home.actors for i in ids):
            raise Refused("there are ids of no new actors")
        try:
            self._reply(line, rid, home.sites.place(ids, needs))
        except NoPlace as error:
            self._reply(line, rid, None, error="no room", note=str(error))

    def _unplace(self, line: Line, message: Message, fds: list[int]) -> None:
        """They will not be spawned after all."""
        ids = numbers(message, "ids")
        self._home.sites.unplace([i for i in ids if i not in self._home.actors])

    def _turn_away(
        self, line: Line, actor: Supervised, rid: int | None, why: str
    ) -> None:
        """There is no room for it. Others may have its handle already, so without a
        reply it counts as an actor that has died."""
        note = f"{actor.label} cannot be started: {why}"
        if rid is not None:
            self._reply(line, rid, None, error="no room", note=note)
            return
        actor.watchers.add(line)
        record = ExitRecord("exception", note=note, placement=True)
        self._home.turn_away(actor, record)

    def _new_actor(
        self, line: Line, message: Message, fds: list[int]
    ) -> tuple[Supervised, list[str]]:
        actor_id = number(message, "id", least=1)
        if actor_id != actor_of(actor_id) or actor_id in self._home.actors:
            raise Refused(f"{actor_id:x} is no id for a new actor")
        if self._home.config is None:
            raise Refused("the session is not configured yet")
        strings(message, "env")
        number(message, "threads", least=1)
        no_more_than(_MOST_OF_A_STREAM, "stream", optional(message, "stream", bytes))
        policy = optional(message, "policy", dict)
        place = optional(message, "place", dict)
        detached = required(message, "detached", bool)
        needs, preload = Needs.of(message), texts(message, "preload")
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
            None if detached else self._home.by_line.get(line),
            detached,
            restart,
            payload,
            needs=needs,
        )
        try:
            self._home.teams.join(line, message, actor)
        except Refused:
            self._home.shelf.drop(payload)
            raise
        return actor, preload

    def _carried(self, message: Message, key: str, fds: list[int]) -> Parcel:
        data = optional(message, key, bytes)
        if (data is None) != (len(fds) == 1):
            raise Refused(f"{key} is either bytes or one descriptor")
        return self._home.shelf.keep(data, fds[0] if fds else None)

    # -- messages of actors about themselves -------------------------------

    def _ready(self, line: Line, message: Message, fds: list[int]) -> None:
        self._home.is_ready(self._sender(line))

    def _failed(self, line: Line, message: Message, fds: list[int]) -> None:
        error = required(message, "error", bytes)
        self._sender(line).failure = no_more_than(_MOST_OF_AN_ERROR, "error", error)

    def _survey(self, line: Line, message: Message, fds: list[int]) -> None:
        for key in ("number", "mailbox", "memory"):
            number(message, key)
        self._home.surveys.answer(self._sender(line), message)

    def _stopping(self, line: Line, message: Message, fds: list[int]) -> None:
        actor = self._sender(line)
        actor.unwanted = actor.unwanted or "stopped"

    def _snapshot(self, line: Line, message: Message, fds: list[int]) -> None:
        actor = self._sender(line)
        parcel = self._carried(message, "data", fds)
        self._home.shelf.drop(actor.snapshot)
        actor.snapshot = parcel
        self._reply(line, optional(message, "rid", int), True)

    # -- requests of any process -------------------------------------------

    def _kill(self, line: Line, message: Message, fds: list[int]) -> None:
        actor, rid = self._find(message), optional(message, "rid", int)
        if actor is None:
            self._reply(line, rid, False)
            return
        actor.end_waiters.append((line, rid))
        self._home.lifetimes.kill_tree(actor)

    def _await_end(self, line: Line, message: Message, fds: list[int]) -> None:
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
        if actor.process is None or actor.incarnation != stopped:
            self._home.lifetimes.stop(actor)

    def _watch(self, line: Line, message: Message, fds: list[int]) -> None:
        """Tell `line` of this actor's deaths; at once if it has died before."""
        known = number(message, "incarnation")
        actor = self._find(message)
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
        actor, rid = self._find(message), optional(message, "rid", int)
        monitor = number(message, "monitor")
        self._reply(line, rid, actor is not None)
        if actor is None:
            return
        if not actor.over:
            actor.monitors.append((line, monitor))
        if actor.last_event is not None:
            self._home.loop.post(line, {**actor.last_event, "monitor": monitor})

    def _unmonitor(self, line: Line, message: Message, fds: list[int]) -> None:
        actor, monitor = self._find(message), number(message, "monitor")
        if actor is not None and (line, monitor) in actor.monitors:
            actor.monitors.remove((line, monitor))

    def _look_up(self, line: Line, message: Message, fds: list[int]) -> None:
        timeout_s = None
        if message.get("timeout") is not None:
            timeout_s = quantity(message, "timeout")
        rid, name = required(message, "rid", int), required(message, "name", str)
        self._home.names.look_up(line, rid, name, timeout_s)

    def _segment(self, line: Line, message: Message, fds: list[int]) -> None:
        rid, name = required(message, "rid", int), required(message, "name", str)
        size = number(message, "size", least=1, most=MOST_OF_A_SEGMENT)
        here = self._home.whereabouts.site_of(line)
        if here is None:
            raise Refused("only a process of this session may have that")
        site = self._home.segments.site(name, here)
        if site is not here:
            note = (
                f"{name!r} has members on host {site.host} already, and this process "
                f"is on host {here.host}, or of another agent there: in this version "
                "all members of a learner group must be actors on one host; place them "
                f"with moo.on(…, host={site.host!r})"
            )
            self._reply(line, rid, None, error="several hosts", note=note)
        elif line.polled:
            fd = self._home.segments.get(name, size)
            reply = {"ev": "reply", "rid": rid, "value": True}
            self._home.loop.post(line, reply, [fd])
        else:  # its own agent has it
            self._reply(line, rid, True, segment=[name, size])

    def _reachable(self, line: Line, message: Message, fds: list[int]) -> None:
        address = no_more_than(256, "address", required(message, "address", str))
        endpoint = no_more_than(4096, "endpoint", required(message, "endpoint", bytes))
        self._home.whereabouts.tell(line, address, endpoint)

    def _locate(self, line: Line, message: Message, fds: list[int]) -> None:
        self._home.whereabouts.ask(line, number(message, "id", least=1))

    def _handle(self, line: Line, message: Message, fds: list[int]) -> None:
        actor, rid = self._find(message), required(message, "rid", int)
        self._reply(line, rid, None if actor is None else actor.handle)

    def _list(self, line: Line, message: Message, fds: list[int]) -> None:
        rows = [
            {**actor.summary(), "host": self._home.sites.host_of(actor.id)}
            for actor in self._home.living.values()
        ]
        self._reply(line, optional(message, "rid", int), rows)

    def _hosts(self, line: Line, message: Message, fds: list[int]) -> None:
        self._reply(line, optional(message, "rid", int), self._home.hosts())

    def _shutdown(self, line: Line, message: Message, fds: list[int]) -> None:
        self._only_driver(line)
        grace = message.get("grace")
        if grace == math.inf:
            message = {**message, "grace": LONGEST_S}
        grace_s = STOP_GRACE_S if grace is None else quantity(message, "grace")
        self._home.lifetimes.shut_down(grace_s, numbers(message, "given_up"))

    def _only_driver(self, line: Line) -> None:
        if line is not self._home.driver:
            raise Refused("only the program that started the session may say that")
