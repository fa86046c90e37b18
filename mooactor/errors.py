# SPDX-License-Identifier: MIT
"""Every error that mooactor raises by itself, in one tree.

::

    MooError
    ├── CallTimeout       (also TimeoutError) its deadline passed; see `delivered`
    ├── ActorDied          the process is gone, and `cause` says why
    │   └── ActorRestarted … and its supervisor has started it anew
    ├── ActorUnavailable   no such actor, or it no longer takes calls
    ├── Overloaded         the mailbox is at its bound; nothing was sent
    ├── Cancelled          by its caller or its deadline
    ├── DeadlockError      the call could only wait for itself
    ├── PeerLost           a member of a learner group died in an operation
    ├── PlacementError     no host satisfies what was asked for
    ├── AuthError          no usable key, or the other side holds another one
    ├── VersionMismatch    the peer speaks another protocol version
    ├── OutOfMemory       (also MemoryError) shared memory is at its limit
    ├── RemoteError        stands in for an exception whose type cannot be had here
    └── InternalError      a bug in mooactor: please report it

A method's own exception is none of these: it reaches the caller as its own type,
with the remote traceback as a note. All errors here can be pickled.
"""

from __future__ import annotations

import signal as _signal
import threading
from dataclasses import dataclass, field
from typing import Any, Literal

# How a process ended; see `Cause`.
Kind = Literal[
    "exit",
    "signal",
    "exception",
    "oom",
    "killed",
    "stopped",
    "owner",
    "host",
    "sibling",
    "child",
    "link",
    "unknown",
]


@dataclass(frozen=True)
class Cause:
    """Why a process ended.

    ``kind`` is ``"exit"`` (`exitcode`), ``"signal"`` (`signal`), ``"exception"``
    (`exception`, raised by ``__init__`` or ``__restore__``), ``"oom"`` (killed by the
    kernel for memory), ``"killed"`` (`moo.kill`), ``"stopped"`` (`moo.stop`),
    ``"owner"`` (the actor that spawned it, named by `owner`, ended; or the session did:
    then `owner` names its program, and `ended` is true), ``"host"`` (its host was lost;
    `host` has its name and how; or the host has left in good order: `ended` is true) or
    ``"unknown"`` (this session never had it). Three kinds follow from the death of
    another actor, named by `actor`, whose own cause is `origin`: ``"sibling"`` (its
    supervisor restarts both together), ``"child"`` (a supervisor gave up on that child)
    and ``"link"`` (`moo.link`).
    ``stderr`` holds the last lines that the process wrote there.
    """

    kind: Kind
    exitcode: int | None = None
    signal: int | None = None
    exception: BaseException | None = None
    stderr: tuple[str, ...] = field(default=(), repr=False)
    owner: str | None = None
    host: str | None = None
    actor: str | None = None
    origin: Cause | None = None
    ended: bool = False

    def __str__(self) -> str:
        if self.kind == "signal" and self.signal is not None:
            why = _LIMITS.get(self.signal, "")
            return f"killed by signal {self.signal} ({_signal_name(self.signal)}){why}"
        if self.kind == "exit":
            return f"exited with code {self.exitcode}"
        if self.kind == "exception":
            return f"{type(self.exception).__name__}: {text_of(self.exception)}"
        if self.kind == "owner" and self.ended:
            return f"its session has ended, with its program {self.owner}"
        if self.kind == "owner":
            return f"ended together with {self.owner}, which had spawned it"
        if self.kind == "host" and self.ended:
            return f"its host {self.host} has left"
        if self.kind == "host":
            return f"its host was lost, {self.host}"
        if self.kind in _FOLLOWING_CAUSES:
            text = _FOLLOWING_CAUSES[self.kind].format(self.actor)
            return text if self.origin is None else f"{text}: {self.origin}"
        return _PLAIN_CAUSES[self.kind]


_LIMITS = {
    24: ": it has used all the processor time that its limit allows (ulimit -t)",
    25: ": it has written a file larger than its limit allows (ulimit -f)",
}
_PLAIN_CAUSES = {
    "oom": "killed by the kernel: out of memory",
    "killed": "killed by moo.kill",
    "stopped": "stopped by moo.stop",
    "signal": "killed by a signal",
    "unknown": "this session has no such actor; the handle may be another session's",
}

_FOLLOWING_CAUSES = {
    "sibling": "ended, to be restarted together with {}",
    "child": "gave up, because its child {} died once too often",
    "link": "killed by its link to {}",
}


def text_of(error: BaseException | None) -> str:
    """``str(error)``, or what can be said if its ``__str__`` fails. Never fails."""
    try:
        return str.__str__(str(error))
    except BaseException as problem:
        pass_ctrl_c(problem)
        return f"(no text: its __str__ raised {type(problem).__name__})"


def pass_ctrl_c(error: BaseException) -> None:
    """Raise a `KeyboardInterrupt` again if it may be Ctrl-C. In threads, and where
    SIGINT is ignored, as in actors, only code of the user's can have raised it."""
    if (
        isinstance(error, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
        and _signal.getsignal(_signal.SIGINT) is not _signal.SIG_IGN
    ):
        raise error


def _signal_name(number: int) -> str:
    try:
        return _signal.Signals(number).name
    except ValueError:
        return "unknown signal"


class MooError(Exception):
    """The root of the tree; never raised itself.

    ``delivered`` is True if the call certainly reached its method, False if it
    certainly did not run, None if that is unknown or makes no sense.
    """

    def __init__(
        self, message: str = "", *, delivered: bool | None = None, **details: Any
    ) -> None:
        super().__init__(message)
        self.delivered = delivered
        self.__dict__.update(details)

    def __reduce__(self) -> tuple[Any, ...]:
        state = dict(self.__dict__)
        return (_rebuild, (type(self), str(self.args[0] if self.args else ""), state))


def _rebuild(cls: type[MooError], message: str, state: dict[str, Any]) -> MooError:
    error = cls(message)
    error.__dict__.update(state)
    return error


def let_out(error: BaseException) -> BaseException:
    """An error that a method lets out, as that of the call of this method, which has
    reached it. It may be that of a call which the method made, and which has not; who
    holds that one sees no change."""
    if not isinstance(error, MooError) or error.delivered:
        return error
    try:
        ours = type(error).__new__(type(error))
    except TypeError:  # a class of the user's, with arguments of its own
        ours = error
    ours.args = error.args
    ours.__dict__.update(error.__dict__)
    ours.delivered = True
    ours.__traceback__ = error.__traceback__
    ours.__cause__, ours.__context__ = error.__cause__, error.__context__
    ours.__suppress_context__ = error.__suppress_context__
    return ours


class CallTimeout(MooError, TimeoutError):
    """The deadline of a call, or the timeout of a wait, passed first."""


class ActorDied(MooError):
    """The actor's process ended before the call did; see `cause`."""

    cause: Cause | None = None

    def __init__(
        self,
        message: str = "",
        *,
        cause: Cause | None = None,
        delivered: bool | None = None,
    ) -> None:
        super().__init__(message, delivered=delivered, cause=cause)


class ActorRestarted(ActorDied):
    """The actor died during the call and runs again; new calls reach the new one."""


class ActorUnavailable(MooError):
    """There is no such actor, or it no longer takes calls."""


def session_ended(because: str = "", delivered: bool | None = None) -> ActorUnavailable:
    """The error of what the end of the session cut short. `because`: what ended it, if
    that was not this program."""
    why = f", because {because}" if because else ""
    return ActorUnavailable(
        f"the session has ended{why}; moo.init() starts another one",
        delivered=delivered,
    )


class Overloaded(MooError):
    """The actor's mailbox is at its bound, and the call does not wait for room."""


class Cancelled(MooError):
    """The call was cancelled."""


class DeadlockError(MooError):
    """A cycle of blocking calls: each waits for the next one for ever.

    ``cycle`` names the actors in the order in which they wait.
    """

    cycle: tuple[str, ...] = ()


class PeerLost(MooError):
    """A member of a learner group died or left during an operation.

    ``rank`` and ``epoch`` say which member of which membership.
    """

    rank: int = -1
    epoch: int = -1


class PlacementError(MooError):
    """No host can give what was asked for.

    ``turned_away`` is True of an actor for which no process was started at all.
    """

    turned_away: bool = False


class AuthError(MooError):
    """A key is missing or unusable, or the other side holds another one."""


class VersionMismatch(MooError):
    """The other side speaks another version of the protocol or of Python."""


class OutOfMemory(MooError, MemoryError):
    """The shared-memory arena is at its limit; the message names the holders."""


class RemoteError(MooError):
    """Stands in for a remote exception whose own type is not available here.

    ``type_name`` is the name of that type, ``reason`` why it could not cross.
    """

    type_name: str = ""
    reason: str = ""


class InternalError(MooError):
    """A broken invariant of mooactor itself. Please report it."""
