# SPDX-License-Identifier: MIT
"""The runtime of this process, if it has one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mooactor import errors

if TYPE_CHECKING:
    from mooactor.process.runtime import Runtime

_current: Runtime | None = None
_forked = False


def current_runtime() -> Runtime:
    """This process's runtime.

    Raises:
      ActorUnavailable: there is none.
    """
    if _forked:
        raise errors.MooError(
            "this process was forked from one that uses mooactor; start it with "
            "moo.spawn, or with the multiprocessing method 'spawn'"
        )
    if _current is None:
        raise errors.ActorUnavailable("no session runs in this process: moo.init()")
    return _current


def set_current_runtime(runtime: Runtime | None) -> None:
    global _current
    _current = runtime


def _after_fork() -> None:
    # Sockets and threads are the parent's: nothing here may touch them.
    global _current, _forked
    _forked = _current is not None
    _current = None


os.register_at_fork(after_in_child=_after_fork)
