# SPDX-License-Identifier: MIT
"""How much memory there is: of the machine, or of the container if that is less."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def memory_in_reach() -> int:
    """Bytes that this process and its like may use together."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *_cgroup_limits()])


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
