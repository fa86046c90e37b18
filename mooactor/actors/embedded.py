# SPDX-License-Identifier: MIT
"""The runtime of this process, which starts when a program first needs it.

Only the driver's starts by itself: an actor's process has one from its birth, a forked
child has none, and after a session was lost the program has to ask for another.
"""

from __future__ import annotations

from mooactor import errors
from mooactor.actors.sessions import init
from mooactor.host import session as _session
from mooactor.process.current import current_runtime, is_forked, known_runtime
from mooactor.process.runtime import Runtime


def ensure_runtime() -> Runtime:
    """This process's runtime; the driver's starts by itself, one for all threads."""
    try:
        return current_runtime()
    except errors.ActorUnavailable:
        if is_forked():
            raise  # a session there must be started explicitly
    with _session.starts:
        _session.refuse_within_start()
        if known_runtime() is None:
            _session.refuse_after_loss()
            init()
        return current_runtime()
