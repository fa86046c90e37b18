# SPDX-License-Identifier: MIT
"""The consequences of an actor's death: its own restart, and that of others.

The home decides, not the supervisor's process: a decision must be there before the
news of a death is told, and no code of the user's may hold it up. `children` has the
rules of a supervisor's children; here they meet processes.

Invariants:

* Each end of a process is judged once, and told once, with its cause and with whether
  the actor comes back.
* A child keeps its id, its handle and its name for as long as it comes back: through
  its own restarts, and through those of its supervisor, and of that one's.
* When a supervisor's process dies and comes back, its children are ended, and start
  again, in their order, once it is up. No process of the old children is left by then.
* A supervisor counts as started when all its children run.
* A supervisor that stops has its children stop in reverse order, each after the one
  that started after it is gone (its process asks for that, see `actors.supervisor`).
"""

from __future__ import annotations

from functools import partial
from signal import SIGKILL
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from mooactor.host.children import MOST_RESTARTS, How, Phase, RestartBudget, Roster
from mooactor.host.lifetimes import Supervised, SupervisedState
from mooactor.host.protocol import Refused
from mooactor.process.exits import ExitRecord
from mooactor.process.supervision import Supervision, When

if TYPE_CHECKING:
    from mooactor.host.home import Home


_AT_ONCE_S = 1e-6  # but after the deaths that are known by now are told


class Sequel(NamedTuple):
    """The consequences of the end of a process."""

    back: bool  # the actor will run again
    delay: float = 0.0  # until then, if it has no supervisor
    kill: tuple[Supervised, ...] = ()  # siblings
    gives_up: bool = False  # its supervisor does


class Supervisors:
    """Judges the ends of a session's actors."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._now = home.loop.clock.now
        self.counts = dict.fromkeys(("deaths", "restarts", "gave_up"), 0)

    # -- children come -----------------------------------------------------

    def enroll(self, actor: Supervised) -> None:
        """The home has taken it in."""
        if actor.member is not None:
            team, key, when, limited = actor.member
            budget = RestartBudget(actor.policy) if limited else None
            team.roster.add(key, when, budget)
            team.actors[key] = actor

    def start(self, actor: Supervised) -> None:
        """Its first start: at once, or when its supervisor has it start."""
        if actor.member is None:
            self._home.start(actor)
        else:
            self._look_after(actor.member.team)

    # -- a process has ended -----------------------------------------------

    def judge(self, actor: Supervised, record: ExitRecord) -> Sequel:
        """The consequences of the end of its process. Ask once for each end."""
        sequel = self._judge(actor, record, self._now())
        self.counts["deaths"] += self._wanted(actor)
        self.counts["restarts"] += sequel.back
        self.counts["gave_up"] += sequel.gives_up
        return sequel

    def _judge(self, actor: Supervised, record: ExitRecord, now: float) -> Sequel:
        if actor.member is not None:
            return self._judge_child(actor, actor.member, record, now)
        if not self._may_return(actor) or (record.placement and not actor.incarnation):
            return Sequel(False)
        delay = actor.budget.take(now)
        return Sequel(delay is not None, delay or 0.0)

    def _judge_child(
        self, actor: Supervised, member: Membership, record: ExitRecord, now: float
    ) -> Sequel:
        team, key = member.team, member.key
        boss = team.supervisor
        how: How = "clean" if record.exitcode == 0 else "failed"
        if not self._wanted(actor) or boss.unwanted or boss.over:
            how = "requested"
        verdict = team.roster.died(key, now, how)
        back, gives_up = verdict.returns, verdict.gives_up
        if back and actor.incarnation >= MOST_RESTARTS:
            back, gives_up = False, gives_up or team.roster.active
            team.roster.give_up()
        elif back and team.roster.gave_up:
            back = self._would_return(boss, now)  # and its children with it
        if not back:
            team.roster.over(key)
        siblings = tuple(team.actors[sibling] for sibling in verdict.kill)
        return Sequel(back, 0.0, siblings, gives_up)

    def _wanted(self, actor: Supervised) -> bool:
        return not actor.unwanted and not self._home.ending

    def _may_return(self, actor: Supervised) -> bool:
        return self._wanted(actor) and actor.incarnation < MOST_RESTARTS

    def _would_return(self, actor: Supervised, now: float) -> bool:
        """Whether it would run again if its process failed now."""
        if not self._may_return(actor):
            return False
        if actor.member is None:
            return actor.budget.allows(now)
        team = actor.member.team
        foreseen = team.roster.foresee(actor.member.key, now)
        if foreseen == "gives up":
            return self._would_return(team.supervisor, now)
        return foreseen == "returns"

    def hold(self, actor: Supervised) -> frozenset[Supervised]:
        """A supervisor's process is gone and comes back: end its children, which come
        back with it. Returns them."""
        team = actor.team
        if team is None:
            return frozenset()
        held = frozenset(child for child in team.actors.values() if not child.over)
        record = ExitRecord("owner", note=actor.label)
        for key in team.roster.pause():
            self._end(team.actors[key], record)
        return held

    def carry_out(self, actor: Supervised, record: ExitRecord, sequel: Sequel) -> None:
        """Do what `judge` has found, now that everybody is told of the end."""
        if actor.member is None:
            if sequel.back:
                again = partial(self._home.start, actor)
                self._home.loop.later(max(sequel.delay, _AT_ONCE_S), again)
            return
        for sibling in sequel.kill:
            self._end(sibling, ExitRecord.follows("sibling", actor.label, record))
        team = actor.member.team
        if sequel.gives_up:
            self._end(team.supervisor, ExitRecord.follows("child", actor.label, record))
        self._look_after(team)

    def _end(self, actor: Supervised, record: ExitRecord) -> None:
        if actor.process is not None:
            self._home.lifetimes.fell(actor, record)
        elif actor.member is not None and not actor.ending:
            self._home.pending.discard(actor)
            actor.member.team.roster.withdrawn(actor.member.key)

    # -- starting ----------------------------------------------------------

    def constructed(self, actor: Supervised) -> bool:
        """Its constructor has returned. Whether it counts as started by that."""
        team = actor.team
        if team is None:
            return True
        if not team.roster.active:
            team.roster.begin()
            self._wake_at(team, self._now())
        return team.roster.complete

    def started(self, actor: Supervised) -> None:
        """It counts as started: it may be the turn of others."""
        if actor.member is not None:
            actor.member.team.roster.ready(actor.member.key)
            self._look_after(actor.member.team)

    def _look_after(self, team: Team) -> None:
        """Soon, start the children that are due. If all run, the supervisor has
        started."""
        self._wake_at(team, self._now() + _AT_ONCE_S)
        boss = team.supervisor
        up = boss.state is SupervisedState.STARTING and team.roster.active
        if up and team.roster.complete:
            self._home.is_ready(boss)

    def _wake_at(self, team: Team, when: float) -> None:
        if team.wake is None or when < team.wake:
            team.wake = when
            delay = max(when - self._now(), _AT_ONCE_S)
            self._home.loop.later(delay, partial(self._start_due, team))

    def _start_due(self, team: Team) -> None:
        team.wake = None
        now = self._now()
        for key in team.roster.start(now):
            if team.roster.phase(key) is Phase.STARTING:  # one before it may have died
                self._home.start(team.actors[key])
        due = team.roster.next_due(now)
        if due is not None:
            self._wake_at(team, due)


def explained(actor: Supervised, record: ExitRecord) -> ExitRecord:
    """The record of its end, which names the death that led to it if one did."""
    fate = actor.fate
    ended_by_us = record.signal == SIGKILL and record.kind in ("signal", "oom")
    if fate is None or not ended_by_us:
        return record
    return replace(fate, stderr=record.stderr)


class Team:
    """A supervisor's children, by key."""

    def __init__(self, supervisor: Supervised, rules: Supervision) -> None:
        self.supervisor = supervisor
        self.roster = Roster(rules)
        self.actors: dict[str, Supervised] = {}
        self.wake: float | None = None  # when its children are looked after next

    def living(self) -> dict[str, int]:
        """The ids of the children that are not over, in their order."""
        return {key: a.id for key, a in self.actors.items() if not a.over}

    def known(self) -> dict[str, int]:
        """As `living`, and 0 for those that somebody has ended, who stay away."""
        ended = {key: 0 for key, a in self.actors.items() if a.over and a.unwanted}
        return {**self.living(), **ended}


class Membership(NamedTuple):
    """The place of a child."""

    team: Team
    key: str
    when: When
    limited: bool  # by its own policy, too


def team_of(supervisor: Supervised) -> Team:
    """Raises Refused: it is none."""
    if supervisor.team is None:
        raise Refused("only a supervisor may say that")
    return supervisor.team
