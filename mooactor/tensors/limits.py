# SPDX-License-Identifier: MIT
"""The memory and processors for this process, of the machine or of its container.

All code asks here for both, so that the doctor reports the runtime's own numbers.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def memory_in_reach() -> int:
    """Bytes that this process and its like may use together."""
    return min([memory_of_machine(), *_memory_limits()])


@functools.cache
def default_memory_limit() -> int:
    """The shared memory that a process provides at most, in bytes: half of what is in
    reach. It is read once, before the first fork: that takes 3 ms of a new process."""
    return memory_in_reach() // 2


def memory_of_machine() -> int:
    """Bytes of main memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def processors() -> int:
    """The number of processors for this process and its children: those that they may
    run on or, if the time of a container comes to fewer, so many."""
    if sys.platform != "linux":  # where this package can be imported, and no more
        return os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0))
    return min(allowed, math.ceil(cpu_quota() or allowed))


def cpu_quota() -> float | None:
    """The processor time that the container has, in processors; None: it may use all.

    It can be spent on any of the machine's processors, which other containers use, too.
    """
    return min(_cpu_quotas(), default=None)


_THREADS = 8  # that a process of ours starts at most, before it does anything
_LEAST_THREADS = 4  # and at least, that of its end included


def refusal_of_threads() -> str | None:
    """Why this process cannot start the threads that it needs; None if it can. ZeroMQ
    ends a process that cannot start its own."""
    for folder, most in _thread_limits():
        for used in _read_number(folder / "pids.current"):
            if most - used < _THREADS:
                return (
                    f"its control group allows {most} processes and threads (pids.max "
                    f"in {folder}), {used} are there, and it needs {_THREADS} more: "
                    "raise that limit (--pids-limit of a container, TasksMax= of "
                    "systemd)"
                )
    most, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if most != resource.RLIM_INFINITY and most < _MANY and os.geteuid():
        used = _tasks_of_user()
        if most - used < _THREADS:
            return (
                f"this user may have {most} processes and threads (ulimit -u), {used} "
                f"are there, and it needs {_THREADS} more: raise that limit"
            )
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
    if limit != resource.RLIM_INFINITY and stack != resource.RLIM_INFINITY:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        used, needed = pages * resource.getpagesize(), _LEAST_THREADS * stack
        if limit - used < needed:
            return (
                f"the limit on its address space is {limit >> 10} KiB (ulimit -v), "
                f"{used >> 10} KiB are in use, and its threads need {needed >> 10} KiB "
                "more: raise that limit"
            )
    return None


_MANY = 8192  # threads: no limit of so many is looked at, which takes a while


@functools.cache
def _thread_limits() -> list[tuple[Path, int]]:
    folders = [(f, _read_number(f / "pids.max")) for f in _cgroup_folders("pids")]
    return [(folder, most) for folder, found in folders for most in found]


def _tasks_of_user() -> int:
    user, found = os.geteuid(), 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.stat().st_uid == user:
                found += len(os.listdir(process / "task"))
    return found


def memory_refusal() -> str:
    """The limits of this process that a mapping or a memory file may have hit."""
    found = [
        f"{name} is {limit >> 10} KiB (ulimit {flag})"
        for what, name, flag in (
            (resource.RLIMIT_AS, "the limit on its address space", "-v"),
            (resource.RLIMIT_FSIZE, "the limit on the size of files", "-f"),
        )
        if (limit := resource.getrlimit(what)[0]) != resource.RLIM_INFINITY
    ]
    return " and ".join(found)


def _cpu_quotas() -> Iterator[float]:
    for folder in _cgroup_folders("cpu"):
        with contextlib.suppress(OSError, ValueError):  # not there, or "max"
            quota, period = map(int, (folder / "cpu.max").read_text().split())
            yield quota / period
        for quota in _read_number(folder / "cpu.cfs_quota_us"):
            for period in _read_number(folder / "cpu.cfs_period_us"):
                if quota > 0:  # -1: all
                    yield quota / period


def _memory_limits() -> Iterator[int]:
    for folder in _cgroup_folders("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            yield from _read_number(folder / name)


def _cgroup_folders(controller: str) -> Iterator[Path]:
    """Those of this process's control groups and of all above them."""
    for path in _cgroup_paths(controller):
        for folder in (path, *path.parents):
            if folder == _CGROUPS.parent:
                break
            yield folder


def _cgroup_paths(controller: str) -> Iterator[Path]:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:  # version 2
            yield _CGROUPS / path.lstrip("/")
        elif controller in controllers.split(","):
            yield _CGROUPS / controller / path.lstrip("/")
            yield _CGROUPS / controller  # inside a container


def _read_number(path: Path) -> Iterator[int]:
    try:
        yield int(path.read_text())
    except (OSError, ValueError):  # not there, or "max"
        return
