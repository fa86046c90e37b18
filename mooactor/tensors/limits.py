# SPDX-License-Identifier: MIT
"""The memory and processors for this process, of the machine or of its container.

All code asks here for both, so that the doctor reports the runtime's own numbers.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def memory_in_reach() -> int:
    """Bytes that this process and its like may use together."""
    return min([memory_of_machine(), *_cgroup_limits()])


@functools.cache
def default_memory_limit() -> int:
    """The shared memory that a process provides at most, in bytes: half of what is in
    reach. It is read once, before the first fork: that takes 3 ms of a new process."""
    return memory_in_reach() // 2


def memory_of_machine() -> int:
    """Bytes of main memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def processors() -> int:
    """The number of processors for this process and its children."""
    if sys.platform != "linux":  # where this package can be imported, and no more
        return os.cpu_count() or 1
    return len(os.sched_getaffinity(0))


def _cgroup_limits() -> Iterator[int]:
    """The limits of this process's control groups and of all above them."""
    for path in _cgroup_paths():
        for folder in (path, *path.parents):
            if folder == _CGROUPS.parent:
                break
            for name in ("memory.max", "memory.limit_in_bytes"):
                yield from _read_number(folder / name)


def _cgroup_paths() -> Iterator[Path]:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:  # version 2
            yield _CGROUPS / path.lstrip("/")
        elif "memory" in controllers.split(","):
            yield _CGROUPS / "memory" / path.lstrip("/")
            yield _CGROUPS / "memory"  # inside a container


def _read_number(path: Path) -> Iterator[int]:
    try:
        yield int(path.read_text())
    except (OSError, ValueError):  # not there, or "max"
        return
