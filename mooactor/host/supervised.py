# SPDX-License-Identifier: MIT
"""The agent's record of one actor, through all its incarnations."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from mooactor.host.children import RestartBudget
from mooactor.host.eventloop import Line
from mooactor.host.site import Process
from mooactor.process.exits import ExitRecord, Unwanted
from mooactor.process.parcel import Parcel
from mooactor.process.protocol import Died, Event, Row, Spawn, death_notice

if TYPE_CHECKING:
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
