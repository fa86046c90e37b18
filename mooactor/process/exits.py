# SPDX-License-Identifier: MIT
"""The end of a process, as the agent knows it and tells others."""

from __future__ import annotations

import dataclasses
import os
import signal
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import force_setattr, replace

from mooactor.control.messages import Handle, Text, readable
from mooactor.errors import Cause, Kind, PlacementError

# The reason of a requested end of an actor; empty: none was requested. "session": that
# of its session.
Unwanted = Literal["", "stopped", "killed", "owner", "session"]


# Of a record that follows from another one, which follows from another one, and so on.
_MOST_ORIGINS = 4
_Line = Annotated[str, Meta(max_length=1 << 12)]
_Lines = Annotated[tuple[_Line, ...], Meta(max_length=32)]


class ExitRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The exception stays pickled: the agent does not look into it. `note` is for ends
    without an exception: the system's refusal, the name of the owner, the host and how
    it was lost, or the actor whose death, in `origin`, led to this one. `ended`: the
    owner is the session's program, or the host has left in good order."""

    kind: Kind
    exitcode: int | None = None
    signal: int | None = None
    exception: Handle | None = None
    stderr: _Lines = ()
    note: Text = ""
    placement: bool = False  # the note is why there is no room for it
    origin: ExitRecord | None = None
    ended: bool = False

    def __post_init__(self) -> None:
        if self.depth > _MOST_ORIGINS:
            raise ValueError("a record has too many origins")
        force_setattr(self, "note", readable(self.note))  # so that it can be sent

    @classmethod
    def follows(cls, kind: Kind, label: str, origin: ExitRecord) -> ExitRecord:
        """Of an end that the death of another actor, named `label`, leads to. In a
        long chain the first deaths are kept, and the last one."""
        if origin.depth >= _MOST_ORIGINS:
            assert origin.origin is not None
            origin = origin.origin
        return cls(kind, note=label, origin=origin)

    @property
    def stopped(self) -> bool:
        """Whether it was asked to stop, and took no longer than it had."""
        by_session = self.kind == "owner" and self.ended
        return (self.kind == "stopped" or by_session) and not self.signal

    @property
    def depth(self) -> int:
        """The number of records in `origin`, its origin, and so on."""
        return 0 if self.origin is None else 1 + self.origin.depth

    @classmethod
    def of(
        cls,
        status: int,
        *,
        unwanted: Unwanted,
        requested: ExitRecord,
        failure: bytes | None,
        stderr: tuple[str, ...],
        oom: bool,
    ) -> ExitRecord:
        """From a wait status and earlier facts of the actor. `requested`: the record of
        the end that is wanted, if one is."""
        if failure is not None:
            return cls("exception", exception=failure, stderr=stderr)
        if unwanted in ("killed", "owner"):
            return replace(requested, stderr=stderr)
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            if unwanted and number == signal.SIGKILL:
                # It took longer than it had; else it crashed.
                return replace(requested, signal=number, stderr=stderr)
            kind: Kind = "oom" if oom and number == 9 else "signal"
            return cls(kind, signal=number, stderr=stderr)
        code = os.WEXITSTATUS(status)
        if unwanted and code == 0:
            return replace(requested, exitcode=0, stderr=stderr)
        return cls("exit", exitcode=code, stderr=stderr)


_FOLLOWS = ("sibling", "child", "link")


def in_words(record: ExitRecord) -> str:
    """The cause as one phrase. The exception is not decoded, so it has no text here;
    a chain of deaths has that of each."""
    if record.kind == "exception":
        return record.note or "its constructor raised an exception"
    text = str(_bare(record))
    return text if record.origin is None else f"{text}: {in_words(record.origin)}"


def cause_of(record: ExitRecord) -> Cause:
    """The public form of a record. It decodes the exception, so never in the agent."""
    from mooactor.control.codec import decode_error

    exception: BaseException | None = None
    if record.exception is not None:
        exception = decode_error(record.exception)
    elif record.kind == "exception":
        exception = OSError(record.note)
        if record.placement:
            exception = PlacementError(record.note, delivered=False, turned_away=True)
    origin = None if record.origin is None else cause_of(record.origin)
    return dataclasses.replace(_bare(record), exception=exception, origin=origin)


def _bare(record: ExitRecord) -> Cause:
    """Without its exception and its origin."""
    return Cause(
        record.kind,
        record.exitcode,
        record.signal,
        stderr=record.stderr,
        owner=record.note if record.kind == "owner" else None,
        host=record.note if record.kind == "host" else None,
        actor=record.note if record.kind in _FOLLOWS else None,
        ended=record.ended,
    )
