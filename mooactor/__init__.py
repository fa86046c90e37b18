# SPDX-License-Identifier: MIT
"""mooactor: actors over ZeroMQ, tensors over a C data plane, learner groups.

Start with `actor`, `spawn` and `init`; errors are one tree under `MooError`.
"""

import importlib
from typing import TYPE_CHECKING

from mooactor.actors.api import (
    as_completed,
    get,
    hosts,
    kill,
    prefetch,
    put,
    stats,
    stop,
    submit,
    wait,
)
from mooactor.actors.current import Current, current
from mooactor.actors.decorator import actor, method
from mooactor.actors.group import Group
from mooactor.actors.handle import Handle
from mooactor.actors.monitor import link, monitor, unlink
from mooactor.actors.ref import Ref
from mooactor.actors.session import ActorInfo, actors, init, lookup, shutdown
from mooactor.actors.spawn import Child, Spec, on, spawn
from mooactor.actors.stream import Stream
from mooactor.actors.supervisor import Supervisor, child
from mooactor.errors import (
    ActorDied,
    ActorRestarted,
    ActorUnavailable,
    AuthError,
    CallTimeout,
    Cancelled,
    Cause,
    DeadlockError,
    InternalError,
    MooError,
    OutOfMemory,
    Overloaded,
    PeerLost,
    PlacementError,
    RemoteError,
    VersionMismatch,
)
from mooactor.process.supervision import (
    Died,
    Event,
    Restart,
    Restarted,
    Started,
    Stopped,
)
from mooactor.tensors.public import empty, move

if TYPE_CHECKING:  # see `__getattr__`
    from mooactor.learner.accumulator import Accumulator as Accumulator
    from mooactor.learner.group import LearnerGroup as LearnerGroup
    from mooactor.learner.group import ddp_hook as ddp_hook

__version__ = "0.1.0"

__all__ = [
    "ActorDied",
    "ActorInfo",
    "ActorRestarted",
    "ActorUnavailable",
    "AuthError",
    "CallTimeout",
    "Cancelled",
    "Cause",
    "Child",
    "Current",
    "DeadlockError",
    "Died",
    "Event",
    "Group",
    "Handle",
    "InternalError",
    "LearnerGroup",
    "MooError",
    "OutOfMemory",
    "Overloaded",
    "PeerLost",
    "PlacementError",
    "Ref",
    "RemoteError",
    "Restart",
    "Restarted",
    "Spec",
    "Started",
    "Stopped",
    "Stream",
    "Supervisor",
    "VersionMismatch",
    "actor",
    "actors",
    "as_completed",
    "child",
    "current",
    "ddp_hook",
    "empty",
    "get",
    "hosts",
    "init",
    "kill",
    "link",
    "lookup",
    "method",
    "monitor",
    "move",
    "on",
    "prefetch",
    "put",
    "shutdown",
    "spawn",
    "stats",
    "stop",
    "submit",
    "unlink",
    "wait",
]


_LATER = {
    "Accumulator": "learner.accumulator",  # it needs torch
    "LearnerGroup": "learner.group",
    "ddp_hook": "learner.group",
}


def __getattr__(name: str) -> object:
    """Imported when they are used: ``moo.rl``, ``moo.testing``, and those of learner
    groups."""
    if name in ("rl", "testing"):
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_LATER[name]}")
    found: object = getattr(module, name)
    return found


def __dir__() -> list[str]:
    """The public names; submodules are importable, and no part of the interface."""
    return [*__all__, "Accumulator", "__all__", "__doc__", "__version__"]
