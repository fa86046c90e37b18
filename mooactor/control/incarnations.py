# SPDX-License-Identifier: MIT
"""Which incarnation of an actor is the present one, for whoever has an old handle.

A handle that was pickled before a restart, such as an argument of an actor that is
restarted later, names a process that is long dead. So the agent leaves a note in the
session's directory for each actor that it restarts: a symbolic link whose target is the
number of the incarnation. It costs a process one system call for each actor that it
meets, and no wait for the agent. On other hosts of the session, the hosts' agents leave
the same notes when the session's agent tells them. A process there that is quicker than
that learns of the death from the session's agent: its first call ends as one that was
under way, with `ActorRestarted` and the cause of the last death.
"""

from __future__ import annotations

import os


def _path(directory: str, actor_id: int) -> str:
    return f"{directory}/{actor_id:016x}.now"


def note(directory: str, actor_id: int, incarnation: int) -> None:
    """For the agent: this is the present one, from now on."""
    path = _path(directory, actor_id)
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass  # its first restart
    os.symlink(str(incarnation), path)


def forget(directory: str, actor_id: int) -> None:
    """For the agent: the actor is over."""
    try:
        os.unlink(_path(directory, actor_id))
    except FileNotFoundError:
        pass  # it was never restarted


def latest(directory: str, actor_id: int) -> int:
    """The present incarnation, as far as it is known here: 0 if there is no note."""
    try:
        return int(os.readlink(_path(directory, actor_id)))
    except OSError:
        return 0
