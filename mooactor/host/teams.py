# SPDX-License-Identifier: MIT
"""The children of supervisors, as the agent keeps them, and requests about them.

What happens to them is decided in `roster` and done in `supervisors`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from mooactor.host.children import Roster
from mooactor.host.eventloop import Line
from mooactor.host.protocol import Refused
from mooactor.host.supervised import Supervised, SupervisedState
from mooactor.process.protocol import (
    CloseTeam,
    Count,
    Request,
    Spawn,
    StopChild,
    Supervise,
)
from mooactor.process.supervision import Supervision, When

if TYPE_CHECKING:
    from mooactor.host.home import Home


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


class Teams:
    """Carries out the requests of supervisors' processes."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def operations(self) -> dict[type[Request], Callable[[Line, Any, list[int]], None]]:
        """The requests of supervisors' processes, and of others about them."""
        return {
            Supervise: self._supervise,
            CloseTeam: self._close,
            StopChild: self._stop,
            Count: self._count,
        }

    def _count(self, line: Line, request: Count, fds: list[int]) -> None:
        """Of any process: how often what happened in this session."""
        counts = {"actors": len(self._home.living), **self._home.supervisors.counts}
        self._home.loop.reply(line, request.rid, counts)

    def _supervise(self, line: Line, request: Supervise, fds: list[int]) -> None:
        """The sender is a supervisor from now on; reply with its children that are
        `known`: there are some if it was one in an earlier incarnation."""
        actor = self._sender(line)
        if actor.team is None:
            actor.team = Team(actor, request.rules)
            if actor.state is SupervisedState.RUNNING:
                actor.team.roster.begin()
        self._home.loop.reply(line, request.rid, actor.team.known())

    def _close(self, line: Line, request: CloseTeam, fds: list[int]) -> None:
        """The sender stops: none of its children comes back. Reply with those that
        run, in their order."""
        team = self._team(line)
        team.roster.close()
        for actor in list(team.actors.values()):
            if actor.process is None:
                self._home.lifetimes.kill(actor, "stopped")
        self._home.loop.reply(line, request.rid, list(team.living().values()))

    def _stop(self, line: Line, request: StopChild, fds: list[int]) -> None:
        """Ask a child of the sender's to stop; reply when it is gone."""
        actor = self._home.actors.get(request.id)
        if actor is None or actor.owner is not self._sender(line):
            raise Refused(f"{request.id:x} is no child of the sender")
        if actor.gone:
            self._home.loop.reply(line, request.rid, True)
            return
        actor.end_waiters.append((line, request.rid))
        self._home.lifetimes.stop(actor)

    def _sender(self, line: Line) -> Supervised:
        actor = self._home.by_line.get(line)
        if actor is None:
            raise Refused("only an actor may say that")
        return actor

    def _team(self, line: Line) -> Team:
        team = self._sender(line).team
        if team is None:
            raise Refused("only a supervisor may say that")
        return team

    def join(self, line: Line, request: Spawn, actor: Supervised) -> None:
        """Make a new actor a child of the supervisor that spawns it, if its request
        says so. It does not start yet.

        Raises:
          Refused: the sender is no supervisor, or cannot have such a child.
        """
        said = request.member
        if said is None:
            return
        team = self._team(line)
        if request.detached:
            raise Refused("a child of a supervisor is its own, not detached")
        if said.key in team.living():
            raise Refused(f"the supervisor has a child {said.key!r:.40} already")
        actor.member = Membership(team, said.key, said.when, said.limited)
