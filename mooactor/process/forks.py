# SPDX-License-Identifier: MIT
"""The end of a runtime in a process that was forked from its own.

All of it is the parent's: the sockets, the threads that the child does not have, the
locks that they may have held. Invariant: no action of such a child, its end included,
sends anything over its parent's sockets, waits for one of its parent's locks, or takes
anything from its parent's session.

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

from typing import TYPE_CHECKING, Any

from mooactor.process.calls import context
from mooactor.process.current import forked_error
from mooactor.tensors.public import disown_current

if TYPE_CHECKING:
    from mooactor.process.runtime import Runtime

# `poller` and `plane` refuse by themselves.
_PARTS = (
    "agent",
    "audit",
    "callbacks",
    "caller",
    "deadlocks",
    "deaths",
    "housekeeper",
    "links",
    "locator",
    "borrows",
    "breaks",
    "messenger",
    "objects",
    "payloads",
    "recounts",
    "relay",
    "results",
    "sender",
    "broadcaster",
    "values",
)


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
    for name in _PARTS:
        _hollow(runtime.__dict__[name])
        runtime.__dict__[name] = Disowned()
    disown_current()
    context.set(None)


def _hollow(part: Any) -> None:
    """Empty a part: other objects that kept it must not act with it."""
    _of_the_parents.append(dict(part.__dict__))
    for name in part.__dict__:
        part.__dict__[name] = Disowned()


_of_the_parents: list[dict[str, Any]] = []
