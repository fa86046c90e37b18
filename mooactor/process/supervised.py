# SPDX-License-Identifier: MIT
"""The agent's record of one actor, through all its incarnations."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

from mooactor.errors import Cause
from mooactor.process.lifeline import Lifeline, Message
from mooactor.process.output import LineReader
from mooactor.process.supervision import RestartBudget
from mooactor.process.zygote import Child


class SupervisedState(Enum):
    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting to restart"
    OVER = "over"


Kind = Literal["exit", "signal", "exception", "oom", "killed", "stopped"]


@dataclass
class ExitRecord:
    """How a process ended, as the agent knows it: the exception stays pickled."""

    kind: Kind
    exitcode: int | None = None
    signal: int | None = None
    exception: bytes | None = None
    stderr: tuple[str, ...] = ()
    note: str = ""

    @classmethod
    def of(
        cls, status: int, actor: Supervised, stderr: tuple[str, ...], oom: bool
    ) -> ExitRecord:
        """From a wait status and what was known of the actor before."""
        if actor.failure is not None:
            return cls("exception", exception=actor.failure, stderr=stderr)
        if actor.unwanted == "killed":
            return cls("killed", stderr=stderr)
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            kind: Kind = "oom" if oom and number == 9 else "signal"
            if actor.unwanted == "stopped":
                kind = "stopped"
            return cls(kind, signal=number, stderr=stderr)
        code = os.WEXITSTATUS(status)
        if actor.unwanted == "stopped" and code == 0:
            return cls("stopped", exitcode=0, stderr=stderr)
        return cls("exit", exitcode=code, stderr=stderr)


def cause_of(record: ExitRecord) -> Cause:
    """The public form; decodes the exception, so only outside the agent."""
    from mooactor.control.codec import decode_error

    exception: BaseException | None = None
    if record.exception is not None:
        exception = decode_error(record.exception)
    elif record.note:
        exception = OSError(record.note)
    return Cause(record.kind, record.exitcode, record.signal, exception, record.stderr)


@dataclass
class Supervised:
    """One actor. ``incarnation`` is that of the running or the next process."""

    spec: Message
    incarnation: int = 0
    state: SupervisedState = SupervisedState.STARTING
    child: Child | None = None
    lifeline: Lifeline | None = None
    readers: dict[int, LineReader] = field(default_factory=dict)
    watchers: set[Lifeline] = field(default_factory=set)
    monitors: list[tuple[Lifeline, int]] = field(default_factory=list)
    end_waiters: list[tuple[Lifeline, int]] = field(default_factory=list)
    snapshot: bytes | None = None
    failure: bytes | None = None
    unwanted: Literal["", "stopped", "killed"] = ""
    last_event: Message | None = None
    _notice: Message | None = None

    def __post_init__(self) -> None:
        self.id: int = self.spec["id"]
        self.name: str | None = self.spec["name"]
        self.label: str = self.spec["label"]
        self.payload: bytes = self.spec["payload"]
        self.policy = self.spec["policy"]
        self.env: dict[str, str] = self.spec["env"]
        self.handle: bytes = self.spec["handle"]
        self.budget = RestartBudget(self.policy)

    @property
    def process_id(self) -> int:
        return self.id + self.incarnation

    @property
    def over(self) -> bool:
        return self.state is SupervisedState.OVER

    def begin(self, child: Child) -> None:
        self.child = child
        self.lifeline = Lifeline(child.lifeline)
        self.failure = None
        self.state = SupervisedState.STARTING

    def ended(self, record: ExitRecord) -> None:
        """Its process is reaped: close what we had of it."""
        if self.child is not None:
            os.close(self.child.pidfd)
        if self.lifeline is not None:
            self.lifeline.close()
        self.child = self.lifeline = None
        self.readers.clear()

    def bury(self) -> None:
        """It will not run again: keep what tells of it, drop what would make it."""
        self.payload = self.handle = b""
        self.snapshot = None
        self.spec = {}

    def forget(self, line: Lifeline) -> None:
        """A process is gone: tell it nothing more."""
        self.watchers.discard(line)
        self.monitors = [entry for entry in self.monitors if entry[0] is not line]
        self.end_waiters = [entry for entry in self.end_waiters if entry[0] is not line]

    def notice(self, record: ExitRecord, following: int | None) -> Message:
        self._notice = {
            "ev": "died",
            "id": self.id,
            "incarnation": self.incarnation,
            "record": record,
            "following": following,
        }
        return self._notice

    def last_notice(self) -> Message:
        assert self._notice is not None, "asked of an actor that never died"
        return self._notice

    def event(self, what: str, record: ExitRecord | None) -> Message:
        return {
            "ev": "event",
            "what": what,
            "actor": self.label,
            "incarnation": self.incarnation,
            "record": record,
        }

    def summary(self) -> dict[str, Any]:
        """One row of `mooactor ps`."""
        return {
            "id": f"{self.id:016x}",
            "label": self.label,
            "name": self.name,
            "pid": self.child.pid if self.child else None,
            "incarnation": self.incarnation,
            "state": self.state.value,
        }
