# SPDX-License-Identifier: MIT
"""Features of the kernel and the container: memfd, pidfd, pages, limits, memory."""

from __future__ import annotations

import mmap
import os
import resource
import socket
import sys
import tempfile
from pathlib import Path

from mooactor.cli.doctor.finding import Finding, broken, note, ok, slow
from mooactor.process import files
from mooactor.process.system import MOUNT_PROC, why_no_proc
from mooactor.tensors.limits import memory_in_reach, memory_of_machine, processors

THP = Path("/sys/kernel/mm/transparent_hugepage")
UNIX_PATH_MAX = 107  # bytes of a unix socket's path, without the final zero
OUR_NAMES = 60  # bytes that a session's directory and socket names may need


def system() -> Finding:
    """mooactor runs on Linux; elsewhere it can only be imported."""
    release = os.uname()
    detail = f"{release.sysname} {release.release}, {release.machine}"
    if sys.platform.startswith("linux"):
        return ok("system", detail)
    return broken("system", detail, "run it on Linux (a virtual machine will do)")


def memfd() -> Finding:
    """Anonymous shared memory, for tensors."""
    try:
        descriptor = os.memfd_create("mooactor-doctor", os.MFD_CLOEXEC)
    except (AttributeError, OSError) as error:
        return broken("memfd", str(error), "use Linux 3.17 or newer; check seccomp")
    try:
        os.ftruncate(descriptor, mmap.PAGESIZE)
        with mmap.mmap(descriptor, mmap.PAGESIZE) as view:
            view[:4] = b"moo!"
        return ok("memfd", "anonymous shared memory works; /dev/shm is not used")
    finally:
        os.close(descriptor)


def pidfd() -> Finding:
    """It shows the death of a process at once."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError) as error:
        remedy = "use Linux 5.3 or newer; a container's seccomp profile may forbid it"
        return broken("pidfd", str(error), remedy)
    return ok("pidfd", "deaths of processes are noticed at once")


def processes_seen() -> Finding:
    """/proc, in which a host finds what its actors have left behind."""
    if (why := why_no_proc()) is not None:
        return broken("/proc", why, MOUNT_PROC)
    return ok("/proc", "it shows this process's own pid namespace")


def passed_descriptors() -> Finding:
    """SCM_RIGHTS: a process hands its memory to another by it."""
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with left, right:
        try:
            socket.send_fds(left, [b"x"], [left.fileno()])
            _, (received, *_), _, _ = socket.recv_fds(right, 1, 1)
        except (OSError, ValueError) as error:
            remedy = "allow SCM_RIGHTS on unix sockets in the sandbox"
            return broken("descriptors", str(error), remedy)
        os.close(received)
    return ok("descriptors", "processes can hand memory to each other")


def directory() -> Finding:
    """The directory of a session's sockets."""
    path = tempfile.gettempdir()
    if not os.access(path, os.W_OK | os.X_OK):
        return broken("directory", f"{path} is read-only", "set TMPDIR elsewhere")
    if len(os.fsencode(path)) + OUR_NAMES > UNIX_PATH_MAX:
        remedy = "set TMPDIR=/tmp: the path of a unix socket has at most 107 bytes"
        return broken("directory", f"{path} is too long a path", remedy)
    return ok("directory", f"sockets lie under {path}")


def shared_huge_pages() -> Finding:
    """Transparent huge pages for memfd: fewer page faults, faster first touch."""
    name = "huge pages"
    try:
        chosen = _chosen(THP / "shmem_enabled")
    except OSError:
        return note(name, "this kernel has no transparent huge pages for memfd")
    if chosen in ("always", "within_size", "advise", "force"):
        return ok(name, f"transparent for shared memory ({chosen})")
    remedy = f"as root: echo advise > {THP / 'shmem_enabled'}"
    return slow(name, f"off for shared memory ({chosen}): first touch is slow", remedy)


def _chosen(path: Path) -> str:
    """The word in brackets, as in ``always [never] advise``."""
    return path.read_text().partition("[")[2].partition("]")[0]


def open_files() -> Finding:
    """Each actor needs descriptors in every process connected with it."""
    limit = files.reachable_limit()
    actors = files.capacity(limit)
    detail = f"{limit} for each process after moo.init(): room for {actors} actors"
    if limit >= 4096:
        return ok("open files", detail)
    return slow("open files", detail, files.REMEDY)


def processes() -> Finding:
    """Each actor is a process with some threads."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if limit == resource.RLIM_INFINITY or limit >= 1024:
        return ok("processes", f"{_limit(limit)} threads and processes")
    return slow("processes", f"only {limit} for this user", "ulimit -u 4096")


def locked_memory() -> Finding:
    """RDMA pins memory; nothing else here does."""
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit == resource.RLIM_INFINITY:
        return ok("locked memory", "unlimited")
    detail = f"{limit >> 10} KiB may be locked; only RDMA would need more"
    return note("locked memory", detail, "ulimit -l unlimited, before using RDMA")


def memory() -> Finding:
    """Tensors in shared memory may take half of the memory."""
    limit, total = memory_in_reach(), memory_of_machine()
    origin = "of the control group" if limit < total else "of this machine"
    detail = f"{limit / 2**30:.1f} GiB {origin}; shared arrays may take half of it"
    if limit >= 2 << 30:
        return ok("memory", detail)
    return slow("memory", detail, "give the container more memory for larger tensors")


def cores() -> Finding:
    """The number of processes that can run at once."""
    count = processors()
    if count > 1:
        return ok("cores", f"{count} for this process")
    remedy = "give the container more than one core: callers and actors take turns now"
    return slow("cores", "one only", remedy)


def ipv6() -> Finding:
    """Not needed: IPv4 will do, or IPv6 alone."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        return note("IPv6", f"absent ({error.strerror}); nothing here needs it")
    return ok("IPv6", "the loopback address answers")


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


CHECKS = (
    system,
    cores,
    memory,
    memfd,
    pidfd,
    processes_seen,
    passed_descriptors,
    directory,
    shared_huge_pages,
    open_files,
    processes,
    locked_memory,
    ipv6,
)
