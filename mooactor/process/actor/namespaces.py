# SPDX-License-Identifier: MIT
"""A network namespace for an actor's process: its own interfaces, as on another host.

Everything else stays as it is: files, and the unix sockets that calls go by.
"""

from __future__ import annotations

import ctypes
import errno
import os

from mooactor import errors
from mooactor.process.system import libc

VARIABLE = "MOOACTOR_NETNS"
_NAMED = "/run/netns"  # where `ip netns` keeps those that have a name
_CLONE_NEWNET = 0x40000000


def enter(namespace: str) -> None:
    """Move this thread, and all that it starts from now on, to a network namespace.

    Args:
      namespace: its name as `ip netns` has it, or a path such as /proc/4711/ns/net.

    Raises:
      PlacementError: there is none, or this process may not enter it.
    """
    try:
        fd = os.open(os.path.join(_NAMED, namespace), os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise errors.PlacementError(
            f"{VARIABLE}={namespace!r}: {error.strerror}; `ip netns list` shows the "
            "existing ones"
        ) from None
    try:
        # As os.setns, which comes with Python 3.12.
        if libc().setns(fd, _CLONE_NEWNET):
            raise errors.PlacementError(_refusal(namespace, ctypes.get_errno()))
    finally:
        os.close(fd)


def _refusal(namespace: str, code: int) -> str:
    what = "entering a network namespace needs root or CAP_SYS_ADMIN"
    if code == errno.EINVAL:
        what = (
            "this is not a network namespace; `ip netns list` shows the existing ones"
        )
    return f"{VARIABLE}={namespace!r}: {os.strerror(code)}; {what}"
