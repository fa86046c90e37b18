# SPDX-License-Identifier: MIT
"""Requests of processes to the host's agent, checked before they are carried out.

They are those of `process.protocol`. Invariants:

* A request is done as a whole or refused: it is decoded before anything changes.
* An error in a request ends that request and nothing else. Its sender gets a
  `Reply` that says why it has failed; a failed `Spawn`, which may be sent without a
  ``rid``, is told as the death of that actor, and a failed `Configure` as `NotJoined`.
* A spawn gives back its place and its parcel if no actor comes of it. Places that were
  asked for beforehand are given back, too, when the asker's process has ended.
* Several actors are placed together or not at all, by what is known here of the hosts:
  other sessions reserve there, too, and a host has the last word when it starts one.
* The `Spawn` of an unknown actor may be unread on another line, though it was sent
  before this request. Such a request is put off until every line has been read up to
  that time.
"""

from __future__ import annotations

import itertools
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import asdict, replace

from mooactor.control.keys import actor_of
from mooactor.control.lifeline import Lifeline
from mooactor.control.messages import Head, Malformed, head_of, readable
from mooactor.errors import MooError
from mooactor.host.eventloop import Line
from mooactor.host.lifetimes import Supervised, SupervisedState
from mooactor.host.placement import NoPlace
from mooactor.host.protocol import Refused, StatusRow
from mooactor.host.supervisors import Membership, Team, team_of
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
    Spawn,
    Stopping,
    Survey,
    Surveyed,
    Unreached,
    death_notice,
)
from mooactor.times import GRACE_S

if TYPE_CHECKING:
    from mooactor.host.home import Home

_ROUNDS = 5  # a line is read by 4 MiB in each, and a frame has at most 16

#: Carries out a request of that line; two have descriptors, too, which stay the loop's.
Operation = Callable[..., None]


class Requests:
    """Carries out the requests of lifelines."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._reply = home.loop.reply
        self._put_off: list[tuple[int, Line, Request]] = []
        # By line: ids that it has had placed, and has not spawned or unplaced since.
        self._placed: dict[Line, set[int]] = {}
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
            Spawn: self._spawn,
            protocol.Reserve: self._reserve,
            protocol.Unreserve: self._unreserve,
            protocol.Kill: self._kill,
            protocol.AwaitEnd: self._await_end,
            protocol.Watch: self._watch,
            protocol.Monitor: self._monitor,
            protocol.Unmonitor: self._unmonitor,
            protocol.GetHandle: self._get_handle,
            protocol.Link: self._link,
            protocol.Unlink: self._unlink,
            protocol.Supervise: self._supervise,
            protocol.CloseTeam: self._close_team,
            protocol.StopChild: self._stop_child,
            protocol.Count: self._count,
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

    def forget(self, line: Line) -> None:
        """A process is gone: what it has not spawned by now will not be."""
        self._give_back(self._placed.pop(line, ()))

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
        action = partial(self._operations[type(request)], line, request)
        if isinstance(request, Spawn | Snapshot):
            action = partial(action, list(fds))
        self._guard(line, request, action)

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
        elif head.type == Spawn.__name__ and head.id:
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

    def _configure(self, line: Line, request: Configure) -> None:
        self._only_driver(line)
        if self._home.config is not None:
            raise Refused("the session is configured already")
        self._home.configure(request)

    # -- messages of actors about themselves -------------------------------

    def _ready(self, line: Line, request: Ready) -> None:
        self._home.is_ready(self._sender(line))

    def _failed(self, line: Line, request: Failed) -> None:
        self._sender(line).failure = request.error

    def _survey(self, line: Line, request: Survey) -> None:
        self._home.surveys.answer(self._sender(line), request)

    def _stopping(self, line: Line, request: Stopping) -> None:
        actor = self._sender(line)
        actor.unwanted = actor.unwanted or "stopped"

    def _snapshot(self, line: Line, request: Snapshot, fds: list[int]) -> None:
        actor = self._sender(line)
        parcel = self._home.parcels.carried(request.data, fds)
        self._home.parcels.drop(actor.snapshot)
        actor.snapshot = parcel
        self._reply(line, request.rid, True)

    # -- requests of any process -------------------------------------------

    def _look_up(self, line: Line, request: LookUp) -> None:
        self._home.names.look_up(line, request.rid, request.name, request.timeout)

    def _segment(self, line: Line, request: Segment) -> None:
        here = self._home.locations.site_of(line)
        if here is None:
            raise Refused("only a process of this session may have that")
        if request.rid is None:
            raise Refused("nobody waits for it")
        share = line if request.share is None else request.share
        number = self._home.masters.number_of(request.group, here, share)
        if isinstance(line, Lifeline):
            memory = self._home.groups.get(number)
            self._home.loop.post(line, Reply(request.rid, True), memory)
        else:  # its own agent has it
            self._home.loop.post(line, Reply(request.rid, True, segment=number))

    def _reachable(self, line: Line, request: Reachable) -> None:
        self._home.locations.tell(line, request.address, request.endpoint)

    def _locate(self, line: Line, request: Locate) -> None:
        self._home.locations.ask(line, request.id)

    def _unreached(self, line: Line, request: Unreached) -> None:
        self._home.locations.unreached(line, request)

    def _list(self, line: Line, request: Request) -> None:
        host_of = self._home.sites.host_of
        rows = [
            actor.summary(host_of(actor.id)) for actor in self._home.living.values()
        ]
        self._reply(line, request.rid, rows)

    def _hosts(self, line: Line, request: Request) -> None:
        self._reply(line, request.rid, self._home.hosts())

    def _shutdown(self, line: Line, request: Shutdown) -> None:
        self._only_driver(line)
        grace_s = GRACE_S if request.grace is None else request.grace
        self._home.lifetimes.shut_down(grace_s, request.given_up)

    def _only_driver(self, line: Line) -> None:
        if line is not self._home.driver:
            raise Refused("only the program that started the session may say that")

    # -- requests of any process about an actor -----------------------------

    def _kill(self, line: Line, request: protocol.Kill) -> None:
        actor = self._home.actor_of(request.id)
        if actor is None:
            self._reply(line, request.rid, False)
            return
        actor.end_waiters.append((line, request.rid))
        self._home.lifetimes.kill_tree(actor)

    def _await_end(self, line: Line, request: protocol.AwaitEnd) -> None:
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

    def _watch(self, line: Line, request: protocol.Watch) -> None:
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

    def _monitor(self, line: Line, request: protocol.Monitor) -> None:
        actor, monitor = self._home.actor_of(request.id), request.monitor
        self._reply(line, request.rid, actor is not None)
        if actor is None:
            return
        if not actor.over:
            actor.monitors.append((line, monitor))
        if actor.last_event is not None:
            self._home.loop.post(line, replace(actor.last_event, monitor=monitor))

    def _unmonitor(self, line: Line, request: protocol.Unmonitor) -> None:
        actor = self._home.actor_of(request.id)
        entry = (line, request.monitor)
        if actor is not None and entry in actor.monitors:
            actor.monitors.remove(entry)

    def _get_handle(self, line: Line, request: protocol.GetHandle) -> None:
        actor = self._home.actor_of(request.id)
        self._reply(line, request.rid, None if actor is None else actor.handle)

    def _link(self, line: Line, request: protocol.Link) -> None:
        pair = self._pair(request)
        over = [i for i, actor in enumerate(pair) if actor is None or actor.over]
        one, other = pair
        if not over and one is not None and other is not None and one is not other:
            one.bonds.add(other)
            other.bonds.add(one)
        self._reply(line, request.rid, over[0] if over else None)

    def _unlink(self, line: Line, request: protocol.Unlink) -> None:
        one, other = self._pair(request)
        if one is not None and other is not None:
            one.bonds.discard(other)
            other.bonds.discard(one)
        self._reply(line, request.rid, True)

    def _pair(
        self, request: protocol.Link | protocol.Unlink
    ) -> list[Supervised | None]:
        return [self._home.actor_of(one) for one in (request.id, request.other)]

    # -- requests that make actors ----------------------------------------------

    def _give_back(self, ids: Iterable[int]) -> None:
        self._home.sites.unplace([i for i in ids if i not in self._home.actors])

    def _forget(self, line: Line, ids: Iterable[int]) -> None:
        """The reservations for these are no concern of the line's any more."""
        left = self._placed.get(line, set())
        left.difference_update(ids)
        if not left:
            self._placed.pop(line, None)

    def _spawn(self, line: Line, request: Spawn, fds: list[int]) -> None:
        home, rid = self._home, request.rid
        actor = self._new_actor(line, request, fds)

        def admit(taken_by: str | None) -> None:
            act = partial(self._admit, line, actor, rid, taken_by)
            self._guard(line, request, act)

        taken_by = None if actor.name is None else home.names.taken_by(actor.name)
        if actor.name is None or taken_by or home.namespace is None:
            admit(taken_by)
        else:
            home.namespace.claim(actor.name, admit)

    def _admit(
        self,
        line: Line,
        actor: Supervised,
        rid: int | None,
        taken_by: str | None,
    ) -> None:
        """Spawn it, unless there is no name or no room for it."""
        home = self._home
        self._forget(line, [actor.id])
        try:
            if not home.loop.is_open(line):
                return  # its spawner has ended while the name was claimed
            if taken_by is not None:
                self._reply(line, rid, None, refused="name taken", note=taken_by)
                return
            if home.is_full():
                self._turn_away(line, actor, rid, home.no_room(len(home.living)))
                return
            try:
                home.sites.ensure_place(actor.id, actor.needs)
            except NoPlace as error:
                self._turn_away(line, actor, rid, str(error))
                return
            actor.watchers.add(line)
            home.spawn(actor)
            self._reply(line, rid, True)
        finally:
            if actor.id not in home.actors:
                home.parcels.drop(actor.payload)
                home.sites.unplace([actor.id])

    def _reserve(self, line: Line, request: protocol.Reserve) -> None:
        """Reserve for each of several actors that will be spawned, or for none."""
        home, ids = self._home, request.ids
        taken = home.actors.keys() | filter(home.sites.is_placed, ids)
        if len(set(ids)) < len(ids) or any(i != actor_of(i) or i in taken for i in ids):
            raise Refused("there are ids of no new actors")
        try:
            home.sites.place(ids, request.needs)
        except NoPlace as error:
            self._reply(line, request.rid, None, refused="no room", note=str(error))
            return
        self._placed.setdefault(line, set()).update(ids)
        self._reply(line, request.rid, [home.sites.host_of(one) for one in ids])

    def _unreserve(self, line: Line, request: protocol.Unreserve) -> None:
        """They will not be spawned after all."""
        self._forget(line, request.ids)
        self._give_back(request.ids)

    def _turn_away(
        self, line: Line, actor: Supervised, rid: int | None, why: str
    ) -> None:
        """There is no room for it. Others may have its handle already, so without a
        reply it counts as an actor that has died."""
        note = f"{actor.label} cannot be started: {why}"
        if rid is not None:
            self._reply(line, rid, None, refused="no room", note=note)
            return
        actor.watchers.add(line)
        record = ExitRecord("exception", note=note, placement=True)
        self._home.turn_away(actor, record)

    def _new_actor(self, line: Line, request: Spawn, fds: list[int]) -> Supervised:
        home, actor_id = self._home, request.id
        if actor_id != actor_of(actor_id) or actor_id in home.actors:
            raise Refused(f"{actor_id:x} is no id for a new actor")
        if home.config is None:
            raise Refused("the session is not configured yet")
        payload = home.parcels.carried(request.payload, fds)
        request.payload = None
        owner = None if request.detached else home.by_line.get(line)
        actor = Supervised(request, owner, payload)
        try:
            self._join_team(line, request, actor)
        except Refused:
            home.parcels.drop(payload)
            raise
        return actor

    def _join_team(self, line: Line, request: Spawn, actor: Supervised) -> None:
        """Make a new actor a child of the supervisor that spawns it, if its request
        says so. It does not start yet.

        Raises:
          Refused: the sender is no supervisor, or cannot have such a child.
        """
        said = request.member
        if said is None:
            return
        team = team_of(self._sender(line))
        if request.detached:
            raise Refused("a child of a supervisor is its own, not detached")
        if said.key in team.living():
            raise Refused(f"the supervisor has a child {said.key!r:.40} already")
        actor.member = Membership(team, said.key, said.when, said.limited)

    # -- requests of supervisors ---------------------------------------------

    def _count(self, line: Line, request: protocol.Count) -> None:
        """Of any process: how often what happened in this session."""
        counts = {"actors": len(self._home.living), **self._home.supervisors.counts}
        self._reply(line, request.rid, counts)

    def _supervise(self, line: Line, request: protocol.Supervise) -> None:
        """The sender is a supervisor from now on; reply with its children that are
        `known`: there are some if it was one in an earlier incarnation."""
        actor = self._sender(line)
        if actor.team is None:
            actor.team = Team(actor, request.rules)
            if actor.state is SupervisedState.RUNNING:
                actor.team.roster.begin()
        self._reply(line, request.rid, actor.team.known())

    def _close_team(self, line: Line, request: protocol.CloseTeam) -> None:
        """The sender stops: none of its children comes back. Reply with those that
        run, in their order."""
        team = team_of(self._sender(line))
        team.roster.close()
        for actor in list(team.actors.values()):
            if actor.process is None:
                self._home.lifetimes.kill(actor, "stopped")
        self._reply(line, request.rid, list(team.living().values()))

    def _stop_child(self, line: Line, request: protocol.StopChild) -> None:
        """Ask a child of the sender's to stop; reply when it is gone."""
        actor = self._home.actors.get(request.id)
        if actor is None or actor.owner is not self._sender(line):
            raise Refused(f"{request.id:x} is no child of the sender")
        if actor.gone:
            self._reply(line, request.rid, True)
            return
        actor.end_waiters.append((line, request.rid))
        self._home.lifetimes.stop(actor)


def _head(request: Request) -> Head:
    return Head(type(request).__name__, request.rid, getattr(request, "id", None))


class Surveys:
    """Those that a home has under way: every process of the session is asked how it is.
    Its housekeeper answers, unless something holds the GIL. Those that do not answer in
    time are listed without what only they know."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._numbers = itertools.count(1)
        self._open: dict[
            int, tuple[dict[int, Survey], Callable[[list[StatusRow]], None]]
        ] = {}

    def begin(self, patience_s: float, then: Callable[[list[StatusRow]], None]) -> None:
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
