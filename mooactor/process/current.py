# SPDX-License-Identifier: MIT
"""The runtime of this process, if it has one.

A process that was forked from one with a runtime has none. All of that is the parent's:
the sockets, the threads that the child does not have, the locks that they may have
held. Invariant: no action of such a child, its end included, sends anything over its
parent's sockets, waits for one of its parent's locks, or takes anything from its
parent's session.

* The parts of the runtime are replaced by one that raises, and so is all that they
  have, since other objects may have kept a part. The old ones stay in memory,
  untouched, since their finalizers would act on what is the parent's.
* The runtime is closed, so its pending futures end when they are looked at: see
  `Future.end_with_session`.
* The C parts see to themselves, also where a fork runs none of Python's hooks: the
  inbox (``cext/mail/inbox.c``), the data plane (``cext/plane/plane.c``) and learner
  groups (``cext/collective/group.c``, `learner.children`).
* The agent does not know of the child, and needs not: see `agent` for how it learns of
  the parent's end.

The child may start a session of its own, which has nothing in common with this one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mooactor import errors
from mooactor.process.calls import context
from mooactor.tensors.public import disown_current

if TYPE_CHECKING:
    from mooactor.process.runtime import Runtime


_current: Runtime | None = None
_ended_by = ""  # what ended the last one's session, if that was not this program
_forked = False  # from a process with a runtime, and has none itself
_was_forked = False  # the same, whether it has one now or not
_imports = False  # what an actor of its session needs, which is not made yet


def current_runtime() -> Runtime:
    """This process's runtime.

    Raises:
      ActorUnavailable: there is none.
    """
    if _forked:
        raise forked_error()
    if _current is None and _ended_by:
        raise errors.session_ended(_ended_by)
    if _current is None:
        raise errors.ActorUnavailable(
            "no session runs in this process: call moo.init() first"
        )
    return _current


def known_runtime() -> Runtime | None:
    """The same, None if there is none."""
    return _current


def is_forked() -> bool:
    """Whether this process was forked from one with a runtime, and has no own."""
    return _forked


def forked_error(what: str = "") -> errors.ActorUnavailable:
    """The error of a forked process that uses `what`, which belongs to its parent."""
    return errors.ActorUnavailable(
        f"{what + ': ' if what else ''}this process was forked from one with a "
        "mooactor session and has no part in that; start a session of its own with "
        "moo.init(), or use moo.spawn in place of the fork",
        delivered=False,
    )


def refuse_in_actor(what: str) -> None:
    """The runtime of an actor's process belongs to its session, not to its methods.

    Raises:
      MooError: this is an actor's process, or one that is about to have an actor.
    """
    refuse_at_import(what)
    if _current is not None and _current.server is not None:
        raise errors.MooError(
            f"{what} is for the driver: this is an actor's process, which is in a "
            "session already. All other functions work here; to end the actor, "
            "raise SystemExit"
        )


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """While this process of a session imports the module of an actor's class.

    Invariant: no import for an actor brings about another actor. One that did would do
    it again in that one's process, without end.
    """
    global _imports
    _imports = True
    try:
        yield
    finally:
        _imports = False


def refuse_at_import(what: str) -> None:
    """Raises MooError: this process is `importing`."""
    if _imports:
        raise errors.MooError(
            f"{what} runs where an actor's process imports the module of its class, "
            "and would start actors without end: put what the program itself does "
            'under `if __name__ == "__main__":`'
        )


def set_current_runtime(runtime: Runtime | None, ended_by: str = "") -> None:
    """Make `runtime` the one of this process; None: it has none any more, because of
    `ended_by`, if that is not this program's own doing."""
    global _current, _ended_by, _forked
    _current, _ended_by = runtime, ended_by
    _forked = _forked and runtime is None


def _after_fork() -> None:
    global _current, _forked, _was_forked
    if _current is not None:
        runtime, _current, _forked, _was_forked = _current, None, True, True
        runtime.disown()


os.register_at_fork(after_in_child=_after_fork)


#: The first refuses by itself, and the second ends the child.
_NOT_REPLACED = ("poller", "server")
_OF_THE_RUNTIME = ("mooactor.control.", "mooactor.process.")


class Disowned:
    """Stands for a part of the parent's runtime; every use of it raises the reason."""

    def __getattr__(self, name: str) -> Any:
        raise forked_error()


def disown(runtime: Runtime) -> None:
    """In the child, right after the fork."""
    _of_the_parents.append(dict(runtime.__dict__))
    runtime.closed = runtime.forked = True
    runtime.inbound = None
    runtime.poller.disown()
    runtime.agent.disown()
    for name, part in list(runtime.__dict__.items()):
        ours = type(part).__module__.startswith(_OF_THE_RUNTIME)
        if ours and hasattr(part, "__dict__") and name not in _NOT_REPLACED:
            _hollow(part)
            runtime.__dict__[name] = Disowned()
    disown_current()
    context.set(None)


def _hollow(part: Any) -> None:
    """Empty a part: other objects that kept it must not act with it."""
    _of_the_parents.append(dict(part.__dict__))
    for name in part.__dict__:
        part.__dict__[name] = Disowned()


_of_the_parents: list[dict[str, Any]] = []
