# SPDX-License-Identifier: MIT
"""The home of a session: it has actors started, watches, restarts and ends them.

It is the session's one brain, in the agent that the driver has started. Wherever an
actor runs, its record is here, and so are names, owners and watchers. `requests` has
the requests of processes, `sites` the hosts on which it has processes started.

`lifetimes` has the rules of ends. When the driver ends, the home kills all that it
started. It knows of that end by a pidfd, which the driver opened of itself: a child
that the driver has forked holds the lifeline open, but is not that process. The end of
the lifeline means the same, for a driver that executes another program.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mooactor.control import incarnations
from mooactor.control.keys import actor_of
from mooactor.control.lifeline import Lifeline
from mooactor.control.messages import Message
from mooactor.host.eventloop import EventLoop, Line
from mooactor.host.groups import Groups, Masters
from mooactor.host.lifetimes import Lifetimes, Supervised, SupervisedState
from mooactor.host.locations import Locations
from mooactor.host.members import FAREWELL
from mooactor.host.names import Names
from mooactor.host.output import Logs
from mooactor.host.placement import NoPlace, Sites, reasons
from mooactor.host.protocol import (
    Born,
    Denied,
    Dying,
    Exited,
    Failed,
    OfAProcess,
)
from mooactor.host.remote import RemoteSite
from mooactor.host.requests import Requests, Surveys
from mooactor.host.site import Process, is_full
from mooactor.host.spawning import ParcelStore, Pending
from mooactor.host.supervisors import Supervisors, explained
from mooactor.process import files
from mooactor.process.deaths import bury
from mooactor.process.exits import ExitRecord
from mooactor.process.protocol import (
    Configure,
    Event,
    HostRow,
    Life,
    Row,
    What,
)
from mooactor.times import GRACE_S

if TYPE_CHECKING:
    from mooactor.host.namespaces import Namespace


_MOST_TRIES = 3  # to have a process forked
_MOST_OF_A_NAME = 200  # characters: the end of a path says more than its beginning


class Home:
    """Everything of one session that one place must know."""

    def __init__(
        self,
        driver: Lifeline,
        driver_process: int,
        loop: EventLoop,
        sites: Sites,
        logs: Logs,
    ) -> None:
        """`driver_process`: its pidfd."""
        self.driver = driver
        self.loop = loop
        self.sites = sites
        self.logs = logs
        self.config: Configure | None = None
        self.actors: dict[int, Supervised] = {}
        self.living: dict[int, Supervised] = {}  # those that are not over
        self.by_line: dict[Line, Supervised] = {}
        self.names = Names(loop)
        self.masters = Masters(self)
        carry = partial(self.masters.take, sites.here)
        self.groups = Groups(loop, sites.here.host, carry)
        self.parcels = ParcelStore()
        self.pending = Pending(self)
        self.locations = Locations(self)
        self.surveys = Surveys(self)
        self._said: set[str] = set()  # of hosts, to the user
        self.ending = False
        self.on_configured: Callable[[Configure], None] | None = None
        # Hears of each actor that will not run again, after all that it has printed.
        self.on_over: Callable[[Supervised, ExitRecord], None] | None = None
        self.lifetimes = Lifetimes(self)
        self.supervisors = Supervisors(self)
        # Other sessions of the namespace; set if this one has a namespace.
        self.namespace: Namespace | None = None
        self.requests = Requests(self)
        loop.watch_line(driver, self)
        loop.watch(driver_process, partial(self._driver_died, driver_process))

    def configure(self, config: Configure) -> None:
        """The first message of the driver's."""
        self.config = config
        self.logs.configure(config)
        self.sites.configure(config)
        self.sites.here.configure(config.place.path, config.argv)
        if self.on_configured is not None:
            self.on_configured(config)

    def actor_of(self, process_id: int) -> Supervised | None:
        """The actor of this session that has, or had, that process."""
        return self.actors.get(actor_of(process_id))

    @property
    def program(self) -> str:
        """The name of the session's program elsewhere."""
        argv, pid = (
            ([], None) if self.config is None else (self.config.argv, self.config.pid)
        )
        return named(argv, pid, self.sites.here.host)

    def tell_driver(self, message: Message) -> None:
        """Send the driver news of the session itself."""
        self.loop.post(self.driver, message)

    def hosts(self) -> list[HostRow]:
        """For `moo.hosts()`: each host that can have actors of this session, or has."""
        actors: dict[str, list[Row]] = {}
        for actor in self.living.values():
            host = self.sites.host_of(actor.id)
            actors.setdefault(host, []).append(actor.summary(host))
        rows = self.sites.rows()
        return [replace(row, actors=actors.get(row.name, [])) for row in rows]

    # -- the loop ----------------------------------------------------------

    @property
    def over(self) -> bool:
        """Whether the session has ended, and nothing of it runs any more."""
        return self.ending and not self.alive()

    def due(self) -> float | None:
        """When `after_round` is needed at the latest (monotonic)."""
        return 0.0 if self.requests.waiting else None

    def after_round(self) -> None:
        """The loop has served what there was."""
        self.requests.after_round()
        self.lifetimes.look()
        self.logs.after_round()

    def report(self) -> Iterator[str]:
        """For SIGUSR1: the actors that are not over."""
        for actor in list(self.living.values()):
            where = "no process" if actor.pid is None else f"process {actor.pid}"
            restarts = f"{actor.incarnation} restarts"
            yield f"{actor.label}: {actor.state.value}, {where}, {restarts}"

    def alive(self) -> list[Supervised]:
        """The actors that have a process now."""
        return [actor for actor in self.living.values() if actor.process]

    def line_closed(self, line: Line) -> None:
        """An actor's process has closed its end, or the driver has: that is the end."""
        self.names.forget(line)
        self.requests.forget(line)
        if self.namespace is not None:
            self.namespace.line_closed(line)
        for actor in self.living.values():
            actor.forget(line)
        self.locations.line_closed(line)
        self.masters.line_closed(line)
        if line is self.driver:
            self.ending = True
            self.lifetimes.kill_all()
        elif line in self.by_line and not self.by_line[line].ending:
            line.close()  # which a living process takes for the session's end
            self.loop.later(GRACE_S, partial(self._without_line, line))

    def _driver_died(self, driver_process: int) -> None:
        self.loop.unwatch(driver_process)
        self.loop.close_line(self.driver)

    def _without_line(self, line: Line) -> None:
        """A process has closed its lifeline, and still runs."""
        actor = self.by_line.get(line)
        if actor is not None and actor.pid is not None and not actor.ending:
            self.sites.kill(actor)

    # -- spawning ----------------------------------------------------------

    def spawn(self, actor: Supervised) -> None:
        """Take a new actor in and have its first process started."""
        self.actors[actor.id] = self.living[actor.id] = actor
        self.supervisors.enroll(actor)
        actor.namesakes = self.names.give(actor)
        if actor.owner is not None:
            actor.owner.owned.add(actor)
            if actor.owner.ending:  # its last words
                self.lifetimes.kill(actor, "owner")
        if self.ending:
            self.lifetimes.kill(actor, "session")
        self.supervisors.start(actor)

    @property
    def _files_each(self) -> int:
        """The descriptors that an actor may need in each process."""
        if self.config is None or self.config.reach is None:
            return files.PER_ACTOR
        return files.per_actor_away(self.config.network.stripes)

    def _least_files(self) -> tuple[int, str]:
        """The least limit of all processes, and the host that has it; "": this one."""
        return min([(files.descriptor_limit(), ""), *self.sites.files()])

    def is_full(self) -> bool:
        """Whether another actor could make some process run out of descriptors."""
        least, _ = self._least_files()
        return len(self.living) >= files.capacity(least, each=self._files_each)

    def no_room(self, actors: int) -> str:
        """Why there can be no more than so many."""
        each, least = self._files_each, self._least_files()
        return files.no_room("the session", actors, each=each, least=least)

    def turn_away(self, actor: Supervised, record: ExitRecord) -> None:
        """Take a new actor in as one that has died before it had a process."""
        self.actors[actor.id] = self.living[actor.id] = actor
        self.ended(actor, record)

    def start(self, actor: Supervised) -> None:
        """Start its next process, as soon as nothing runs that it owned."""
        if self.ending or actor.over or actor.process is not None:
            return
        actor.due = not all(owned.quiet for owned in actor.owned)
        if not actor.due:
            actor.denials.clear()  # there may be room meanwhile
            actor.lost = 0
            self._bear(actor)

    def _bear(self, actor: Supervised, otherwise: ExitRecord | None = None) -> None:
        life = self._life_of(actor)
        parcels = (actor.payload, actor.snapshot)
        fds = [fd for parcel in parcels if parcel for fd in parcel.fds]
        try:
            process = self.sites.start(actor, life, fds)
        except NoPlace as error:
            self._finds_no_place(actor, str(error), otherwise)
            return
        except (OSError, TypeError) as error:
            note, full = str(error), is_full(error)
            if full:
                note = self.no_room(len(self.living) - 1)
            note = f"{actor.label} cannot be started: {note}"
            self.ended(actor, ExitRecord("exception", note=note, placement=full))
            return
        self.pending.discard(actor)
        actor.begin(process)
        self.by_line[process.line] = actor

    def _life_of(self, actor: Supervised) -> Life:
        """The description of its next process, for that."""
        config, request = self.config, actor.request
        assert config is not None
        life = Life(
            actor.id,
            actor.incarnation,
            actor.label,
            request.env,
            request.threads,
            config.directory,
            config.key,
            config.process_id,
            config.network,
            actor.name,
            actor.namesakes,
            actor.policy,
            request.place,
            request.stream,
            config.memory_limit,
            config.seed,
            config.setup,
            config.reach,
        )
        if actor.payload is not None:
            life.payload = actor.payload.data
            life.carried += ["payload"] * len(actor.payload.fds)
        if actor.snapshot is not None:
            life.snapshot = actor.snapshot.data
            life.carried += ["snapshot"] * len(actor.snapshot.fds)
        return life

    def _finds_no_place(
        self, actor: Supervised, why: str, otherwise: ExitRecord | None
    ) -> None:
        """No host takes it: it waits, or is turned away. `why` is about those that were
        not asked."""
        if self._waits(actor):
            self.pending.add(actor)
            return
        if otherwise is None:
            said = reasons(actor.denials.values(), why)
            note = f"{actor.label} cannot be started: {said}"
            otherwise = ExitRecord("exception", note=note, placement=True)
        self.ended(actor, otherwise)

    def _waits(self, actor: Supervised) -> bool:
        """Whether it waits while there is no place for it, and so loses no restart.

        A new actor does not: its spawner is told. A supervisor's child had a place when
        it was spawned, and its turn to start came later, so it waits as one that ran
        before, unless it is never to come back.
        """
        member = actor.member
        stays = actor.incarnation > 0 or (member is not None and member.when != "never")
        return stays and not actor.unwanted and not self.ending

    # -- news of sites -----------------------------------------------------

    def handle(self, line: Line, data: bytes, fds: list[int]) -> None:
        """The driver, or a process of an actor, has said something."""
        self.requests.handle(line, data, fds)

    def happened(self, process: Process, message: OfAProcess) -> None:
        """News of a process, the last one but for these two."""
        if isinstance(message, Born):
            return  # the messages that wait for it will arrive
        if isinstance(message, Dying):
            self.by_line[process.line].ending = True
            return
        actor = self.let_go(process)
        if isinstance(message, Exited):
            record = ExitRecord.of(
                message.status,
                unwanted=actor.unwanted,
                requested=self.lifetimes.requested(actor),
                failure=actor.failure,
                stderr=tuple(message.stderr),
                oom=message.oom,
            )
            self.ended(actor, explained(actor, record))
        elif isinstance(message, Failed) and not self._asks_again(actor, message):
            here, host = self.sites.here.host, self.sites.host_of(actor.id)
            where = "" if host == here else f"on host {host}: "
            note = f"{actor.label} cannot be started: {where}{message.note}"
            self.ended(actor, ExitRecord("exception", note=note))
        elif actor.unwanted:
            self.sites.unplace([actor.id])
            self.ended(actor, self.lifetimes.requested(actor))
        elif isinstance(message, Denied):
            # Other sessions have reserved there meanwhile, or no GPU has so much free
            # in one piece.
            host = self.sites.host_of(actor.id)
            self._place_anew(actor, host, message.note)
        else:
            self._bear(actor)

    def _asks_again(self, actor: Supervised, message: Failed) -> bool:
        actor.lost += message.again
        return actor.unwanted != "" or (message.again and actor.lost < _MOST_TRIES)

    # -- news of other hosts -------------------------------------------------

    def host_lost(self, process: Process, why: str, begun: bool = True) -> None:
        """It is dead, or will be when its host's agent knows that it has lost us.

        `begun`: that host may have begun it, even if it has not told us. Otherwise the
        actor has not failed: the same incarnation is placed anew, on a host that has
        not failed it yet.
        """
        actor = self.let_go(process)
        host = self.sites.host_of(actor.id)
        record = record_of_loss(host, why)
        if actor.unwanted:
            self.ended(actor, self.lifetimes.requested(actor))
        elif begun or self.ending:
            self.ended(actor, record)
        else:
            named = self.passes_over(host, why)
            self._place_anew(actor, host, named, record)

    def _place_anew(
        self,
        actor: Supervised,
        host: str,
        note: str,
        otherwise: ExitRecord | None = None,
    ) -> None:
        """`host` has not begun it, for the reason in `note`. `otherwise` is how a new
        actor ends if there is no other host."""
        actor.denials[host] = note
        self.sites.unplace([actor.id])
        self._bear(actor, otherwise)

    def passes_over(self, host: str, why: str) -> str:
        """A host cannot take part: the user is told once. The reason, with its name."""
        why = f"host {host} has left" if why == FAREWELL else why
        named = why if why.startswith(f"host {host} ") else f"host {host}: {why}"
        self._say_once(f"{named}; actors start on other hosts, or wait")
        return named

    def _say_once(self, text: str) -> None:
        """For the user, whose actors go elsewhere, or wait."""
        if text not in self._said:
            self._said.add(text)
            print(f"mooactor: {text}", file=sys.stderr)

    def site_closed(self, site: RemoteSite, why: str) -> None:
        """No process of the session runs on that host any more."""
        self.sites.closed(site)
        self.masters.site_closed(site)

    def let_go(self, process: Process) -> Supervised:
        """Forget a process that never ran, or has ended."""
        actor = self.by_line.pop(process.line)
        actor.process = None
        return actor

    # -- death -------------------------------------------------------------

    def ended(self, actor: Supervised, record: ExitRecord) -> None:
        """It has no process now: tell its watchers, and restart it if that is due."""
        actor.ending = False
        self.pending.discard(actor)
        sequel = self.supervisors.judge(actor, record)
        following = actor.incarnation + 1 if sequel.back else None
        self._note_incarnation(actor, following)
        notice = actor.notice(record, following)
        for watcher in list(actor.watchers):
            self.loop.post(watcher, notice)
        what: What = "stopped" if actor.unwanted else "died"
        self._tell_monitors(actor, what, record, last=not sequel.back)
        self._remove_inbox(actor.process_id)
        self.locations.process_lost(actor.process_id)
        self.lifetimes.end_owned(
            actor,
            gently=record.stopped,
            spare=self.supervisors.hold(actor) if sequel.back else (),
        )
        linked = self.lifetimes.led_to(actor, record)
        if sequel.back:
            actor.incarnation += 1
            actor.state = SupervisedState.WAITING
        else:
            self.lifetimes.bury(actor)
            if self.on_over is not None:
                self.on_over(actor, record)
        self.lifetimes.spread(actor, record, linked)
        self.supervisors.carry_out(actor, record, sequel)
        self.lifetimes.settle(actor)

    @property
    def _directory(self) -> str:
        assert self.config is not None
        return os.fsdecode(self.config.directory)

    def _note_incarnation(self, actor: Supervised, following: int | None) -> None:
        self.sites.note(actor.id, following)
        try:
            if following is None:
                incarnations.forget(self._directory, actor.id)
            else:
                incarnations.note(self._directory, actor.id, following)
        except OSError:
            pass  # the directory was removed: no call reaches anybody any more

    def _remove_inbox(self, process_id: int) -> None:
        # The data plane's socket stays: that it refuses is how a dead owner is known.
        try:
            os.unlink(f"{self._directory}/{process_id:016x}")
        except OSError:
            pass  # it never had one
        bury(self._directory, process_id)

    def _tell_monitors(
        self,
        actor: Supervised,
        what: What,
        record: ExitRecord | None = None,
        last: bool = False,
    ) -> None:
        event = Event(what, actor.label, actor.incarnation, record, last)
        actor.last_event = event
        for line, monitor in list(actor.monitors):
            self.loop.post(line, replace(event, monitor=monitor))

    def is_ready(self, actor: Supervised) -> None:
        """Its constructor has returned; and if it is a supervisor, its children run."""
        starting = actor.state is SupervisedState.STARTING
        if starting and self.supervisors.constructed(actor):
            actor.state = SupervisedState.RUNNING
            self._tell_monitors(actor, "restarted" if actor.incarnation else "started")
            self.supervisors.started(actor)


def record_of_loss(host: str, why: str) -> ExitRecord:
    """Of an actor whose host is gone."""
    if why == FAREWELL:
        return ExitRecord("host", note=host, ended=True)
    return ExitRecord("host", note=f"{host}: {why}")


def called(argv: Sequence[bytes]) -> str:
    """The name of a session's program: its command line."""
    return b" ".join(argv[:1]).decode(errors="replace") or "an interactive program"


def named(argv: Sequence[bytes], pid: int | None, host: str) -> str:
    """The same, with its process, for those who may know several."""
    what = "python -c" if argv[:1] == [b"-c"] else called(argv)[-_MOST_OF_A_NAME:]
    return f"{what} ({f'pid {pid} ' if pid else ''}on host {host})"
