# SPDX-License-Identifier: MIT
"""Requests of processes to the host's agent, checked before they are carried out.

A request is ``{"op": …}`` with fields of plain values. One with an ``rid`` is answered
by ``{"ev": "reply", "rid": …, "value": …}``.

Invariants:

* A request is done as a whole or refused: its fields are checked before anything
  changes, and by their exact types, for any sender.
* An error in a request ends that request and nothing else. Its sender gets
  ``"failed": reason`` in the reply; a failed `spawn`, which may be sent without an
  ``rid``, is told as the death of that actor, and a failed `configure` as
  ``{"ev": "not_joined", "why"}``.
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

from mooactor.control.lifeline import Message
from mooactor.errors import MooError
from mooactor.host.births import Births
from mooactor.host.eventloop import Line
from mooactor.host.fields import (
    LONGEST_S,
    MAX_ID,
    Refused,
    bytes_of,
    number,
    numbers,
    optional,
    quantity,
    required,
    text,
    texts,
)
from mooactor.host.program import HAS_ENDED
from mooactor.host.remote_fields import MOST_OF_A_SEGMENT
from mooactor.host.supervised import Supervised, death_notice
from mooactor.host.watching import Watching
from mooactor.process.exits import ExitRecord
from mooactor.times import GRACE_S

if TYPE_CHECKING:
    from mooactor.host.home import Home

# The agent's messages to others must fit into a frame, too.
_MOST_OF_AN_ERROR = 1 << 21
_ROUNDS = 5  # a line is read by 4 MiB in each, and a frame has at most 16
_OF_AN_ACTOR = frozenset(("kill", "await_end", "watch", "monitor", "handle", "link"))
#: Those that processes of other sessions of the namespace may make; see `neighbors`.
SERVED = frozenset(
    ("watch", "monitor", "unmonitor", "kill", "await_end", "locate", "handle")
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
        self.births = Births(home, self._guard)
        self._operations: dict[str, Callable[[Line, Message, list[int]], None]] = {
            "configure": self._configure,
            "ready": self._ready,
            "failed": self._failed,
            "stopping": self._stopping,
            "snapshot": self._snapshot,
            "lookup": self._look_up,
            "segment": self._segment,
            "list": self._list,
            "hosts": self._hosts,
            "reachable": self._reachable,
            "locate": self._locate,
            "unreached": self._unreached,
            "survey": self._survey,
            "shutdown": self._shutdown,
            **self.births.operations(),
            **Watching(home).operations(),
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
            otherwise = partial(self._serve, line, message, [])
            guard = partial(self._guard, line, message)
            guard(partial(neighbors.take, line, message, otherwise, guard))

    def _is_foreign(self, message: Message) -> bool:
        op, actor_id, config = message.get("op"), message.get("id"), self._home.config
        if type(op) is not str or op not in SERVED or type(actor_id) is not int:
            return False
        is_driver = config is not None and actor_id == config["process_id"]
        return not is_driver and self._home.actor_in(message) is None

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
        except (OSError, MooError) as error:
            self._refuse(line, message, str(error))
        except Exception as error:  # a bug: not everybody's end
            traceback.print_exc(file=sys.stderr)
            self._refuse(line, message, f"{type(error).__name__}: {error}")

    def _refuse(self, line: Line, message: Message, why: str) -> None:
        rid, actor_id = message.get("rid"), message.get("id")
        if type(rid) is int:
            self._reply(line, rid, None, failed=why)
        elif message.get("op") == "configure":
            self._home.loop.post(line, {"ev": "not_joined", "why": why})
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
        unknown = self._home.actor_in(message) is None
        return unknown or (
            "other" in message and self._home.actor_in(message, "other") is None
        )

    def _sender(self, line: Line) -> Supervised:
        actor = self._home.by_line.get(line)
        if actor is None:
            raise Refused("only an actor may say that")
        return actor

    # -- the session ---------------------------------------------------------

    def _configure(self, line: Line, message: Message, fds: list[int]) -> None:
        self._only_driver(line)
        if self._home.config is not None:
            raise Refused("the session is configured already")
        texts(message, "path"), texts(message, "argv"), texts(message, "preload")
        for key, kind in _CONFIGURATION.items():
            required(message, key, kind)
        optional(message, "seed", int), optional(message, "pid", int)
        optional(message, "reach", dict), optional(message, "cluster", dict)
        optional(message, "setup", bytes)
        self._home.configure(message)

    # -- messages of actors about themselves -------------------------------

    def _ready(self, line: Line, message: Message, fds: list[int]) -> None:
        self._home.is_ready(self._sender(line))

    def _failed(self, line: Line, message: Message, fds: list[int]) -> None:
        self._sender(line).failure = bytes_of(message, "error", _MOST_OF_AN_ERROR)

    def _survey(self, line: Line, message: Message, fds: list[int]) -> None:
        for key in ("number", "mailbox", "memory"):
            number(message, key)
        self._home.surveys.answer(self._sender(line), message)

    def _stopping(self, line: Line, message: Message, fds: list[int]) -> None:
        actor = self._sender(line)
        actor.unwanted = actor.unwanted or "stopped"

    def _snapshot(self, line: Line, message: Message, fds: list[int]) -> None:
        actor = self._sender(line)
        parcel = self._home.shelf.carried(message, "data", fds)
        self._home.shelf.drop(actor.snapshot)
        actor.snapshot = parcel
        self._reply(line, optional(message, "rid", int), True)

    # -- requests of any process -------------------------------------------

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
        waiting, members = None, 0
        if "waiting" in message:
            waiting, members = number(message, "waiting"), number(message, "members")
        why = self._home.formations.why_not(name, line, here, members)
        if why:
            self._reply(line, rid, None, error="several hosts", note=why)
            return
        if line.polled:
            try:
                fds = self._home.groups.get(name, size)
            except ValueError as error:
                raise Refused(str(error)) from None
            self._home.loop.post(line, {"ev": "reply", "rid": rid, "value": True}, fds)
        else:  # its own agent has it
            self._reply(line, rid, True, segment=[name, size])
        if waiting is not None:
            self._home.formations.waits(name, line, waiting)

    def _reachable(self, line: Line, message: Message, fds: list[int]) -> None:
        address = text(message, "address", 256)
        endpoint = bytes_of(message, "endpoint", 4096)
        self._home.whereabouts.tell(line, address, endpoint)

    def _locate(self, line: Line, message: Message, fds: list[int]) -> None:
        self._home.whereabouts.ask(line, number(message, "id", least=1))

    def _unreached(self, line: Line, message: Message, fds: list[int]) -> None:
        process_id, why = number(message, "id", least=1), text(message, "why", 256)
        latest, mark = number(message, "latest"), number(message, "mark")
        self._home.whereabouts.unreached(line, process_id, latest, mark, why)

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
        grace_s = GRACE_S if grace is None else quantity(message, "grace")
        how = self._home.did(optional(message, "why", str) or HAS_ENDED)
        self._home.lifetimes.shut_down(grace_s, numbers(message, "given_up"), how=how)

    def _only_driver(self, line: Line) -> None:
        if line is not self._home.driver:
            raise Refused("only the program that started the session may say that")
