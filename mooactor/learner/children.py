# SPDX-License-Identifier: MIT
"""Forked children of a member, which are no members.

Invariant: a child takes no lock of a group before it is refused. A thread that it has
not got may have held the lock at the fork, and holds it there for ever.
"""

from __future__ import annotations

import os

from mooactor.process.current import forked_error


def is_child(pid: int) -> bool:
    """Whether this process is not the one of that number, but a forked child of it."""
    return os.getpid() != pid


def refuse_in_child(pid: int, group: str) -> None:
    """Refuse to use what belongs to the member with that pid.

    Raises:
      ActorUnavailable: this process is a forked child of it.
    """
    if os.getpid() != pid:  # in each call: a frame less
        raise forked_error(f"learner group {group!r}")
