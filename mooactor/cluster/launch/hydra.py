# SPDX-License-Identifier: MIT
"""What tells jobs of MPICH's mpiexec, Hydra, apart: it sets no variable that does.

Each rank is started by a ``hydra_pmi_proxy`` on its host, whose command line has the
host and the port of the mpiexec that it belongs to: the same for all ranks of one
mpiexec, and no other's while that one runs.
"""

from __future__ import annotations

import os
import re

_PROXY = "hydra_pmi_proxy"
_OPTION = "--control-port"
_GENERATIONS = 16  # a rank may be started by a shell, and that by another one


def control_port(pid: int | None = None) -> str | None:
    """``HOST:PORT`` of the mpiexec that has started this process, or None."""
    pid = os.getppid() if pid is None else pid
    for _ in range(_GENERATIONS):
        if pid <= 1:
            return None
        try:
            words = _words(pid)
            if os.path.basename(words[0]) == _PROXY and _OPTION in words:
                return words[words.index(_OPTION) + 1]
            pid = _parent(pid)
        except (OSError, IndexError):
            return None  # it has just ended, or belongs to another user
    return None


def _words(pid: int) -> list[str]:
    with open(f"/proc/{pid}/cmdline", errors="replace") as file:
        return file.read().split("\0")


def _parent(pid: int) -> int:
    with open(f"/proc/{pid}/status", errors="replace") as file:
        found = re.search(r"^PPid:\s+(\d+)$", file.read(), re.M)
    return int(found[1]) if found else 0
