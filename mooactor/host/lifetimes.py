# SPDX-License-Identifier: MIT
"""The record of each actor, through all its incarnations, and the ends of actors:
requested ones, and those that follow from others.

Invariants:

* Every actor has an owner: the actor that spawned it, or the session. Every end of an
  owner's process ends the actors that it owns, and those that they own: by a request to
  stop if the owner itself was stopped, else by a kill.
* A restarted owner starts when all of these are gone, so the names that it will give
  again are free. The children of a supervisor that comes back are not gone: none of
  them has a process then.
* An actor whose end was requested is never restarted, in any state.
* An actor that ends because its session does has that as its cause, whoever asks the
  actor to stop. `moo.stop` before that, and
  `moo.kill`, stay what they are.
* A process that waits for an end is told when neither the actor nor what it owned will
  run again.

Invariants of links, which `moo.link` makes:

* A link is between two actors, in both directions, and outlasts their restarts. It
  ends when one of the two is over, or with `moo.unlink`.
* An abnormal end of one ends the processes of all that are linked with it, directly or
  through others, at once and once: their deaths lead back to nobody. The rest
  is up to the policy or the supervisor of each.
* An end is normal if the actor was stopped or exited with code 0. The end of the
  session spreads nothing.

Of actors that will not run again, the records of their ends are kept. A
restarted supervisor finds its children's records, so these stay while they are in its
books; and while somebody waits for the end of what an actor owned, so does that actor.
Of the others the oldest go, and are as if they had never been.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, cast

from mooactor.errors import Kind
from mooactor.host.children import RestartBudget
from mooactor.host.eventloop import Line
from mooactor.host.site import Process
from mooactor.process.exits import ExitRecord, Unwanted
from mooactor.process.parcel import Parcel
from mooactor.process.protocol import Died, Event, Row, Spawn, Stop, death_notice
from mooactor.times import GRACE_S

if TYPE_CHECKING:
    from mooactor.host.home import Home
    from mooactor.host.supervisors import Membership, Team


class SupervisedState(Enum):
    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting to restart"
    OVER = "over"


@dataclass(eq=False)
class Supervised:
    """One actor. ``incarnation`` is that of the running or the next process."""

    request: Spawn
    owner: Supervised | None = None  # None: the session
    payload: Parcel | None = None
    snapshot: Parcel | None = None
    incarnation: int = 0
    state: SupervisedState = SupervisedState.STARTING
    process: Process | None = None
    namesakes: int = 0  # actors that had its name before
    watchers: set[Line] = field(default_factory=set)
    monitors: list[tuple[Line, int]] = field(default_factory=list)
    end_waiters: list[tuple[Line, int | None]] = field(default_factory=list)
    owned: set[Supervised] = field(default_factory=set)  # those that are not gone
    failure: bytes | None = None
    unwanted: Unwanted = ""
    ending: bool = False  # its process is dead, and its last words are read
    # It starts as soon as nothing runs that it owned, and there is a place for it; see
    # `spawning.Pending`.
    due: bool = False
    lost: int = 0  # requests for its next process
    # Of hosts that have not taken its next process: why, by host, in their order.
    denials: dict[str, str] = field(default_factory=dict)
    member: Membership | None = None  # its place among a supervisor's children
    team: Team | None = None  # of a supervisor: its children
    bonds: set[Supervised] = field(default_factory=set)  # actors linked with it
    fate: ExitRecord | None = None  # why it was ended, if that was nobody's request
    last_event: Event | None = None
    _notice: Died | None = None

    def __post_init__(self) -> None:
        self.id, self.name, self.label = (
            self.request.id,
            self.request.name,
            self.request.label,
        )
        self.handle = self.request.handle  # pickled, never looked into
        self.needs, self.detached = self.request.needs, self.request.detached
        self.policy = self.request.policy
        self.budget = RestartBudget(self.policy)

    @property
    def process_id(self) -> int:
        """The id of its present or next process."""
        return self.id + self.incarnation

    @property
    def over(self) -> bool:
        return self.state is SupervisedState.OVER

    @property
    def gone(self) -> bool:
        """Whether neither it nor anything that it owned will ever run again."""
        return self.over and not self.owned

    @property
    def quiet(self) -> bool:
        """Whether nothing of it runs, and nothing will before its owner is up again."""
        comes = self.process is not None or self.due
        held = self.member is not None and not comes
        return (self.over or held) and all(owned.quiet for owned in self.owned)

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None else None

    @property
    def owner_label(self) -> str | None:
        return self.owner.label if self.owner is not None else None

    def begin(self, process: Process) -> None:
        """There is, or will be, a process of it."""
        self.process = process
        self.failure = self.fate = None
        self.ending = self.due = False
        self.state = SupervisedState.STARTING

    def forget(self, line: Line) -> None:
        """A process is gone: tell it nothing more."""
        self.watchers.discard(line)
        self.monitors = [entry for entry in self.monitors if entry[0] is not line]
        self.end_waiters = [entry for entry in self.end_waiters if entry[0] is not line]

    def descendants(self) -> list[Supervised]:
        """Those that it owns, that they own, and so on, owners first."""
        found = list(self.owned)
        for actor in found:  # which grows meanwhile
            found += actor.owned
        return found

    def notice(self, record: ExitRecord, following: int | None) -> Died:
        """The notice for its watchers of the end of a process."""
        self._notice = death_notice(self.process_id, record, following)
        return self._notice

    def last_notice(self) -> Died:
        """The latest `death_notice`; it must have died before."""
        assert self._notice is not None, "asked of an actor that never died"
        return self._notice

    def over_now(self) -> None:
        """It will not run again: drop what only a living one needs."""
        self.state = SupervisedState.OVER
        self.watchers.clear()
        self.monitors.clear()
        self.payload = self.snapshot = None
        self.handle = b""
        self.request = Spawn(self.id, self.label, b"", threads=self.request.threads)

    def summary(self, host: str) -> Row:
        """One row of `moo.actors` and `moo.hosts`; `host`: where it runs."""
        process = self.process
        return Row(
            f"{self.id:016x}",
            self.label,
            self.name,
            self.pid,
            [] if process is None else process.cores,
            None if process is None else process.cuda_visible_devices,
            self.request.threads,
            self.incarnation,
            self.state.value,
            self.owner_label,
            self.detached,
            host,
        )


_MOST = 1 << 14  # that will not run again, and are known


class Lifetimes:
    """Ends the actors of a session."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._given_up: set[int] = set()  # actors that the session's end does not await
        self._dead: deque[Supervised] = deque()  # about in the order of their ends

    def kill(self, actor: Supervised, why: Unwanted = "killed") -> None:
        """End it now, in any state; it is not restarted."""
        if actor.over:
            return
        self._is_unwanted(actor, why)
        if actor.ending:
            return  # its end is under way
        if actor.pid is not None:
            self._home.sites.kill(actor)
            return
        if actor.process is not None:
            process = actor.process
            self._home.let_go(process)
            self._home.sites.disown(actor, process)
        self._home.ended(actor, self.requested(actor))

    def _is_unwanted(self, actor: Supervised, why: Unwanted) -> None:
        if self._home.ending and why != "killed":
            why = "session"
        actor.unwanted = actor.unwanted or why

    def requested(self, actor: Supervised) -> ExitRecord:
        """The record of the end that is wanted of it, without one of its process."""
        if actor.unwanted == "session":
            return self.of_session()
        owner = (actor.owner_label or "") if actor.unwanted == "owner" else ""
        return ExitRecord(cast(Kind, actor.unwanted or "unknown"), note=owner)

    def of_session(self) -> ExitRecord:
        """The record of those that end with the session."""
        return ExitRecord("owner", note=self._home.program, ended=True)

    def fell(self, actor: Supervised, record: ExitRecord) -> None:
        """End its process now, if it has one, for the reason in the record. That is a
        death: its policy, or its supervisor, may bring it back."""
        if actor.process is None or actor.ending:
            return  # it is dead already
        actor.fate = record
        if actor.pid is not None:
            self._home.sites.kill(actor)
            return
        process = actor.process
        self._home.let_go(process)
        self._home.sites.disown(actor, process)
        self._home.ended(actor, record)

    def stop(self, actor: Supervised, grace_s: float = GRACE_S) -> None:
        """Ask it to stop, in any state; it is not restarted. `grace_s`: what it has
        for its own clean-up."""
        self._is_unwanted(actor, "stopped")
        if actor.process is None:
            self.kill(actor)
        else:
            self._home.loop.post(actor.process.line, Stop(grace_s))

    def kill_tree(self, actor: Supervised) -> None:
        """End it and all that it owns now."""
        owned = actor.descendants()
        self.kill(actor)
        for one in owned:
            self.kill(one, "owner")
        self.release(actor)

    def end_owned(
        self, actor: Supervised, *, gently: bool, spare: Container[Supervised] = ()
    ) -> None:
        """Its process has ended: end the actors that it owns, but `spare` some."""
        loop = self._home.loop
        for owned in list(actor.owned):
            if owned in spare:
                continue
            if gently and owned.process is not None:
                self._is_unwanted(owned, "owner")
                loop.post(owned.process.line, Stop())
                loop.later(GRACE_S, partial(self.kill, owned, "owner"))
            else:
                self.kill(owned, "owner")

    def release(self, actor: Supervised | None) -> None:
        """If an actor and all that it owned are gone, its owner has one less."""
        while actor is not None and actor.gone:
            for line, rid in actor.end_waiters:
                self._home.loop.reply(line, rid, True)
            actor.end_waiters.clear()
            owner = actor.owner
            if owner is not None:
                owner.owned.discard(actor)
                if owner.due:
                    self._home.start(owner)
            actor = owner

    def settle(self, actor: Supervised) -> None:
        """Its process is gone: start the owners that may have waited for that."""
        owner = actor.owner
        while owner is not None:
            if owner.due:
                self._home.start(owner)
            owner = owner.owner

    def shut_down(self, grace_s: float, given_up: Sequence[int] = ()) -> None:
        """Ask every actor to stop. Those that still run after the grace are killed, and
        those in `given_up` as soon as the others have ended. A second call shortens the
        grace."""
        home = self._home
        home.ending = True
        self._given_up.update(given_up)
        for actor in reversed(home.alive()):
            member = actor.member
            if member is not None and member.team.supervisor.process is not None:
                continue  # its supervisor has it stop when its turn comes
            self.stop(actor, grace_s)
        home.loop.later(grace_s, self.kill_all)

    def look(self) -> None:
        """After each round: is there anybody whose end is worth waiting for?"""
        if self._given_up and all(a.id in self._given_up for a in self._home.alive()):
            self.kill_all()

    def kill_all(self) -> None:
        """The session is over."""
        for actor in self._home.alive():
            self.kill(actor, "session")

    # -- links ----------------------------------------------------------------

    def led_to(self, actor: Supervised, record: ExitRecord) -> list[Supervised]:
        """The actors to which this end of its process spreads: all that are linked with
        it, directly or through others. None if the end was normal, or came over a link
        itself: of actors that die together only the first looks for the others."""
        is_over_a_link = actor.fate is not None and actor.fate.kind == "link"
        if is_over_a_link or self._home.ending or _is_normal(record):
            return []
        seen, found = {actor}, [actor]
        for one in found:  # which grows meanwhile
            fresh = [other for other in one.bonds if other not in seen]
            seen.update(fresh)
            found += fresh
        return found[1:]

    def spread(
        self, actor: Supervised, record: ExitRecord, others: list[Supervised]
    ) -> None:
        """Its process has ended: end those of the `others`, as `led_to` gave them while
        it was not over yet."""
        for other in others:
            fate = ExitRecord.follows("link", actor.label, record)
            self.fell(other, fate)

    # -- those that will not run again ---------------------------------------

    def bury(self, actor: Supervised) -> None:
        """It will not run again: drop what only a living one needs, and its names."""
        home = self._home
        payload, snapshot = actor.payload, actor.snapshot
        actor.over_now()
        del home.living[actor.id]
        home.sites.unplace([actor.id])
        home.locations.forget(actor)
        home.names.free(actor)
        for other in actor.bonds:
            other.bonds.discard(actor)
        actor.bonds.clear()
        home.parcels.drop(payload)
        home.parcels.drop(snapshot)
        self.release(actor)
        self._dead.append(actor)
        # Two at most, for those that cannot go now are looked at again and again.
        for _ in range(min(2, len(self._dead) - _MOST)):
            oldest = self._dead.popleft()
            if oldest.gone and oldest.member is None:
                del home.actors[oldest.id]
            else:
                self._dead.append(oldest)


def _is_normal(record: ExitRecord) -> bool:
    return record.kind == "stopped" or (record.kind == "exit" and not record.exitcode)
