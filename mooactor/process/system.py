# SPDX-License-Identifier: MIT
"""Services of Linux that Python lacks: some calls of the C library."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
from typing import Any

from mooactor import errors

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36

#: The next step where `why_no_proc` has a reason.
MOUNT_PROC = "mount it (`mount -t proc proc /proc`, or `unshare --mount-proc`)"

_libc: Any = None


def libc() -> Any:
    """The C library, loaded once."""
    global _libc
    if _libc is None:
        import ctypes

        _libc = ctypes.CDLL(None, use_errno=True)
    return _libc


def die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent`, its parent, dies."""
    libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parent dies."""
    if libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(
            "this kernel does not let a process adopt orphans: use Linux 3.4 or newer"
        )


def name_process(title: str) -> None:
    """Set the name that `ps` and `top` show; the kernel keeps fifteen bytes."""
    libc().prctl(_PR_SET_NAME, title.encode(errors="replace")[:15] + b"\0", 0, 0, 0)


def close_all_but(kept: set[int]) -> None:
    """Close every other descriptor of this process."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd not in kept:
            try:
                os.close(fd)
            except OSError:
                pass  # the one that listed them


def kill_group(pid: int) -> None:
    """Kill a process and its group, which it leads or is about to."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass


def why_no_proc() -> str | None:
    """Why /proc is of no use here, or None. It says which processes there are, by
    their numbers; those of another pid namespace are other processes here."""
    try:
        own = os.readlink("/proc/self")
    except OSError as error:
        return f"/proc cannot be read ({error.strerror})"
    if own == str(os.getpid()):
        return None
    return "/proc is that of another pid namespace"


def is_child(pid: int) -> bool:
    """Whether that is a child of this process, dead or alive."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def children(pid: int | None = None) -> list[int]:
    """The pids of the children of a process, by default this one; dead ones that are
    not reaped included."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # it is gone
        for task in os.listdir(f"/proc/{pid or 'self'}/task"):
            found += _children_of_task(f"/proc/{pid or 'self'}/task/{task}")
    return found


def _children_of_task(path: str) -> list[int]:
    try:
        with open(f"{path}/children", "rb", buffering=0) as file:
            return [int(word) for word in file.readall().split()]
    except OSError:
        return []  # it is gone, or the kernel does not tell (CONFIG_PROC_CHILDREN)


def resident_bytes(pid: int | None = None) -> int:
    """The memory of a process, this one by default, shared pages included."""
    with open(f"/proc/{pid or 'self'}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


NETNS_VARIABLE = "MOOACTOR_NETNS"
_NAMED = "/run/netns"  # where `ip netns` keeps those that have a name
_CLONE_NEWNET = 0x40000000


def enter_network_namespace(namespace: str) -> None:
    """Move this thread, and all that it starts from now on, to a network namespace: it
    has interfaces of its own, as on another host. Everything else stays as it is:
    files, and the unix sockets that calls go by.

    Args:
      namespace: its name as `ip netns` has it, or a path such as /proc/4711/ns/net.

    Raises:
      PlacementError: there is none, or this process may not enter it.
    """
    try:
        fd = os.open(os.path.join(_NAMED, namespace), os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise errors.PlacementError(
            f"{NETNS_VARIABLE}={namespace!r}: {error.strerror}; `ip netns list` shows "
            "the existing ones"
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
    return f"{NETNS_VARIABLE}={namespace!r}: {os.strerror(code)}; {what}"
