# SPDX-License-Identifier: MIT
"""Whether two agents are on one machine, so that their processes can share a directory.

A driver and a `mooactor host` may well run side by side. Then the processes of both
talk through sockets in the directory of the session, and share memory, as on one host.
Host names tell nothing of that. What is compared: the kernel's boot id, the namespaces
that matter, the name in `HOST_ID` (which plays several hosts on one machine), and the
directory itself, which must be the same one and the user's own.
"""

from __future__ import annotations

import os

from mooactor.control.messages import readable
from mooactor.host.protocol import Invitation

HOST_ID = "MOOACTOR_HOST_ID"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_NAMESPACES = ("net", "pid", "user")  # a mount namespace shows in the directory


def _here() -> list[str]:
    with open(_BOOT_ID) as file:
        boot = file.read().strip()
    spaces = [os.readlink(f"/proc/self/ns/{kind}") for kind in _NAMESPACES]
    return [boot, *spaces, readable(os.environ.get(HOST_ID, ""))]


def invitation(directory: str) -> Invitation | None:
    """To use this directory, for an agent that can."""
    try:
        found = os.stat(directory)
        here = _here()
    except OSError:
        return None  # there is no /proc, say
    return Invitation(here, os.fsencode(directory), found.st_dev, found.st_ino)


def accepted(invitation: Invitation | None) -> str | None:
    """The directory, if it can be used from here."""
    if invitation is None:
        return None
    directory = os.fsdecode(invitation.directory)
    try:
        found = os.stat(directory)
        same = (invitation.device, invitation.inode) == (found.st_dev, found.st_ino)
        if invitation.machine != _here() or not same:
            return None
    except (OSError, ValueError):
        return None
    ours = found.st_uid == os.geteuid() and os.access(directory, os.W_OK | os.X_OK)
    return directory if ours else None
