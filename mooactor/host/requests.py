# SPDX-License-Identifier: MIT
"""Requests of processes to the host's agent, checked before they are carried out.

They are those of `process.protocol`. Invariants:

* A request is done as a whole or refused: it is decoded before anything changes.
* An error in a request ends that request and nothing else. Its sender gets a
  `Reply` that says why it has failed; a failed `Spawn`, which may be sent without a
  ``rid``, is told as the death of that actor, and a failed `Configure` as `NotJoined`.
* The `Spawn` of an unknown actor may be unread on another line, though it was sent
  before this request. Such a request is put off until every line has been read up to
  that time.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mooactor.control.messages import Head, Malformed, head_of, readable
from mooactor.errors import MooError
from mooactor.host.eventloop import Line
from mooactor.host.protocol import Refused
from mooactor.host.spawning import Births
from mooactor.host.supervised import Supervised
from mooactor.host.watching import Watching
from mooactor.process import protocol
from mooactor.process.exits import ExitRecord
from mooactor.process.protocol import (
    REQUESTS,
    SERVED,
    Configure,
    Failed,
    Locate,
    LookUp,
    OfAnActor,
    Reachable,
    Ready,
    Reply,
    Request,
    Segment,
    Shutdown,
    Snapshot,
    Stopping,
    Survey,
    Unreached,
    death_notice,
)
from mooactor.times import GRACE_S

if TYPE_CHECKING:
    from mooactor.host.home import Home

_ROUNDS = 5  # a line is read by 4 MiB in each, and a frame has at most 16

#: Carries out a request; the descriptors stay the loop's.
Operation = Callable[[Line, Any, list[int]], None]


class Requests:
    """Listens to lifelines and carries out their requests."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._reply = home.loop.reply
        self._put_off: list[tuple[int, Line, Request]] = []
        self.births = Births(home, self._guard)
        self._operations: dict[type[Request], Operation] = {
            Configure: self._configure,
            Ready: self._ready,
            Failed: self._failed,
            Stopping: self._stopping,
            Snapshot: self._snapshot,
            LookUp: self._look_up,
            Segment: self._segment,
            protocol.ListActors: self._list,
            protocol.ListHosts: self._hosts,
            Reachable: self._reachable,
            Locate: self._locate,
            Unreached: self._unreached,
            Survey: self._survey,
            Shutdown: self._shutdown,
            **self.births.operations(),
            **Watching(home).operations(),
            **home.teams.operations(),
            **home.bonds.operations(),
        }

    # -- as they come ------------------------------------------------------

    def handle(self, line: Line, data: bytes, fds: list[int]) -> None:
        """Do one request; see the module."""
        try:
            request = REQUESTS.decode(data)
        except Malformed as error:
            self._refuse(line, head_of(data), str(error))
            return
        if isinstance(request, OfAnActor) and self._unknown(request):
            self._put_off.append((_ROUNDS, line, request))
            return
        self._serve_or_hand_on(line, request, fds)

    def _serve_or_hand_on(self, line: Line, request: Request, fds: list[int]) -> None:
        """Serve it, unless it is for an actor of another session of the namespace."""
        namespace = self._home.namespace
        if (
            namespace is not None
            and isinstance(request, SERVED)
            and self._is_foreign(request.id)
        ):
            otherwise = partial(self.serve, line, request)
            guard = partial(self._guard, line, request)
            guard(partial(namespace.take, line, request, otherwise, guard))
        else:
            self.serve(line, request, fds)

    def _is_foreign(self, process_id: int) -> bool:
        config = self._home.config
        is_driver = config is not None and process_id == config.process_id
        return not is_driver and self._home.actor_of(process_id) is None

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
        for rounds, line, request in put_off:
            if rounds and self._unknown(request):
                self._put_off.append((rounds - 1, line, request))
            else:
                self._serve_or_hand_on(line, request, [])

    def serve(self, line: Line, request: Request, fds: Sequence[int] = ()) -> None:
        """Do a request, which may be that of another session's process."""
        operation = self._operations[type(request)]
        self._guard(line, request, partial(operation, line, request, list(fds)))

    def _guard(self, line: Line, request: Request, action: Callable[[], None]) -> None:
        """Do what belongs to a request; an error in it ends that request only."""
        try:
            action()
        except (Refused, OSError, MooError) as error:
            self._refuse(line, _head(request), str(error))
        except Exception as error:  # a bug: not everybody's end
            traceback.print_exc(file=sys.stderr)
            self._refuse(line, _head(request), f"{type(error).__name__}: {error}")

    def _refuse(self, line: Line, head: Head, why: str) -> None:
        why, loop = readable(why), self._home.loop
        if head.rid is not None:
            loop.post(line, Reply(head.rid, failed=why))
        elif head.type == Configure.__name__:
            loop.post(line, protocol.NotJoined(why))
        elif head.type == Snapshot.__name__:
            lost = f"a snapshot is lost, a restart would restore an older one: {why}"
            loop.post(line, protocol.LostSnapshot(lost))
        elif head.type == protocol.Spawn.__name__ and head.id:
            # Without an id it is no actor's, and nobody waits.
            loop.post(line, death_notice(head.id, ExitRecord("exception", note=why)))

    def _unknown(self, request: Request) -> bool:
        assert isinstance(request, OfAnActor)
        ids = [request.id]
        if isinstance(request, protocol.Link):
            ids.append(request.other)
        return any(self._home.actor_of(one) is None for one in ids)

    def _sender(self, line: Line) -> Supervised:
        actor = self._home.by_line.get(line)
        if actor is None:
            raise Refused("only an actor may say that")
        return actor

    # -- the session ---------------------------------------------------------

    def _configure(self, line: Line, request: Configure, fds: list[int]) -> None:
        self._only_driver(line)
        if self._home.config is not None:
            raise Refused("the session is configured already")
        self._home.configure(request)

    # -- messages of actors about themselves -------------------------------

    def _ready(self, line: Line, request: Ready, fds: list[int]) -> None:
        self._home.is_ready(self._sender(line))

    def _failed(self, line: Line, request: Failed, fds: list[int]) -> None:
        self._sender(line).failure = request.error

    def _survey(self, line: Line, request: Survey, fds: list[int]) -> None:
        self._home.surveys.answer(self._sender(line), request)

    def _stopping(self, line: Line, request: Stopping, fds: list[int]) -> None:
        actor = self._sender(line)
        actor.unwanted = actor.unwanted or "stopped"

    def _snapshot(self, line: Line, request: Snapshot, fds: list[int]) -> None:
        actor = self._sender(line)
        parcel = self._home.shelf.carried(request.data, fds)
        self._home.shelf.drop(actor.snapshot)
        actor.snapshot = parcel
        self._reply(line, request.rid, True)

    # -- requests of any process -------------------------------------------

    def _look_up(self, line: Line, request: LookUp, fds: list[int]) -> None:
        self._home.names.look_up(line, request.rid, request.name, request.timeout)

    def _segment(self, line: Line, request: Segment, fds: list[int]) -> None:
        here = self._home.whereabouts.site_of(line)
        if here is None:
            raise Refused("only a process of this session may have that")
        if request.rid is None:
            raise Refused("nobody waits for it")
        share = line if request.share is None else request.share
        number = self._home.masters.number_of(request.group, here, share)
        if line.polled:
            memory = self._home.groups.get(number)
            self._home.loop.post(line, Reply(request.rid, True), memory)
        else:  # its own agent has it
            self._home.loop.post(line, Reply(request.rid, True, segment=number))

    def _reachable(self, line: Line, request: Reachable, fds: list[int]) -> None:
        self._home.whereabouts.tell(line, request.address, request.endpoint)

    def _locate(self, line: Line, request: Locate, fds: list[int]) -> None:
        self._home.whereabouts.ask(line, request.id)

    def _unreached(self, line: Line, request: Unreached, fds: list[int]) -> None:
        self._home.whereabouts.unreached(line, request)

    def _list(self, line: Line, request: Request, fds: list[int]) -> None:
        host_of = self._home.sites.host_of
        rows = [
            actor.summary(host_of(actor.id)) for actor in self._home.living.values()
        ]
        self._reply(line, request.rid, rows)

    def _hosts(self, line: Line, request: Request, fds: list[int]) -> None:
        self._reply(line, request.rid, self._home.hosts())

    def _shutdown(self, line: Line, request: Shutdown, fds: list[int]) -> None:
        self._only_driver(line)
        grace_s = GRACE_S if request.grace is None else request.grace
        self._home.lifetimes.shut_down(grace_s, request.given_up)

    def _only_driver(self, line: Line) -> None:
        if line is not self._home.driver:
            raise Refused("only the program that started the session may say that")


def _head(request: Request) -> Head:
    return Head(type(request).__name__, request.rid, getattr(request, "id", None))
